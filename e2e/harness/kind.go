// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	kind "sigs.k8s.io/kind/pkg/cluster"
	"sigs.k8s.io/kind/pkg/cluster/nodes"
	"sigs.k8s.io/kind/pkg/log"
)

// Nodes are the containers of a kind cluster that are Kubernetes nodes.
type Nodes struct {
	ControlPlanes, Workers []nodes.Node
}

func newKind() (*kind.Provider, error) {
	options := []kind.ProviderOption{kind.ProviderWithLogger(log.NoopLogger{})}
	switch name := runtimeName(); name { // kind's own detection does not know the variable
	case "":
	case "docker":
		options = append(options, kind.ProviderWithDocker())
	case "podman":
		options = append(options, kind.ProviderWithPodman())
	default:
		options = append(options, kind.ProviderWithNerdctl(name))
	}
	provider := kind.NewProvider(options...)
	// A client may be installed without a running daemon.
	if _, err := provider.List(); err != nil {
		return nil, fmt.Errorf("no container runtime answers (%w): start Docker, Podman or nerdctl, or a private Docker with\n"+
			`  eval "$(go -C e2e/offline run ./dockerd start)"`, err)
	}
	return provider, nil
}

func findNodes(cluster string) (*Nodes, error) {
	provider, err := newKind()
	if err != nil {
		return nil, err
	}
	all, err := provider.ListInternalNodes(cluster)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b nodes.Node) int { return strings.Compare(a.String(), b.String()) })
	var found Nodes
	for _, n := range all {
		role, err := n.Role()
		switch {
		case err != nil:
			return nil, err
		case role == "control-plane":
			found.ControlPlanes = append(found.ControlPlanes, n)
		case role == "worker":
			found.Workers = append(found.Workers, n)
		}
	}
	if len(found.ControlPlanes) == 0 {
		return nil, fmt.Errorf("kind has no cluster %s with a control plane", cluster)
	}
	return &found, nil
}

// All are control planes and workers.
func (n *Nodes) All() []nodes.Node {
	return append(append([]nodes.Node{}, n.ControlPlanes...), n.Workers...)
}

// Run runs a command in a node and returns what it printed; its error holds that too.
func Run(ctx context.Context, node nodes.Node, command string, args ...string) (string, error) {
	var out bytes.Buffer
	err := node.CommandContext(ctx, command, args...).SetStdout(&out).SetStderr(&out).Run()
	if err != nil {
		err = fmt.Errorf("%s: %s %s: %w\n%s", node, command, strings.Join(args, " "), err, out.String())
	}
	return out.String(), err
}

// Address is a node's IPv4 address in the containers' network.
func Address(node nodes.Node) (string, error) {
	ip, _, err := node.IP()
	return ip, err
}

func saveKindLogs(cluster, dir string) error {
	provider, err := newKind()
	if err != nil {
		return err
	}
	return provider.CollectLogs(cluster, dir)
}
