// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/check"
	"github.com/fairlead-dev/fairlead/pkg/check/incluster"
	"github.com/fairlead-dev/fairlead/pkg/cluster"
)

// CheckEnv implements cluster.Provider.
func (p *Provider) CheckEnv(ctx context.Context, name string, config *rest.Config) (*check.Env, error) {
	pl, err := p.load(ctx, name)
	if err != nil {
		return nil, err
	}
	if config.Host != pl.state.serverURL() {
		return nil, nil // the name is ours, but the kubeconfig points to another cluster
	}
	addresses := nodeAddresses(ctx, config)
	env, err := incluster.NewEnv(config, pl.bundle, hostAddress(addresses))
	if err != nil {
		return nil, err
	}
	env.Cluster, env.Bundle = cluster.ContextName(name), pl.bundle
	env.ServerMetrics, env.ServerMetricsAside = pl.serverMetrics(addresses), true
	if pl.state.ControlPlanes > 1 {
		env.APIServerMetrics = pl.apiServerMetrics
	}
	return env, nil
}

// nodeAddresses returns the addresses of nodes in their network; none if they cannot
// be read, which the first check then explains.
func nodeAddresses(ctx context.Context, config *rest.Config) map[string]string {
	out := map[string]string{}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return out
	}
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return out
	}
	for _, n := range nodes.Items {
		for _, a := range n.Status.Addresses {
			if a.Type == corev1.NodeInternalIP {
				out[n.Name] = a.Address
			}
		}
	}
	return out
}

// hostAddress returns this machine's address in the network of the nodes, where Pods
// can reach it; "" if it is unknown.
func hostAddress(addresses map[string]string) string {
	for _, a := range addresses {
		return incluster.OwnAddress("https://" + net.JoinHostPort(a, strconv.Itoa(nodePort)))
	}
	return ""
}

// serverMetrics reads the metrics of every Konnectivity server directly, because a
// request through the API server would itself go through the tunnel. If this machine
// is not in the nodes' network, or the health port listens on loopback only, it
// reads them on each server's own node, which takes longer.
func (p *plan) serverMetrics(addresses map[string]string) func(ctx context.Context) ([]byte, error) {
	server := &p.bundle.Konnectivity.Server
	port := strconv.Itoa(int(server.HealthPort))
	host := konnectivity.HealthHost(server.HealthBindAddress)
	direct := !incluster.OnLoopback(p.bundle)
	return func(ctx context.Context) ([]byte, error) {
		if direct {
			text, err := p.askServers(ctx, addresses, port)
			if direct = err == nil; direct {
				return text, nil
			}
		}
		return p.onControlPlanes(ctx, "curl", "--silent", "--show-error", "--fail", "--max-time", "10", "http://"+net.JoinHostPort(host, port)+"/metrics")
	}
}

// directLimit is short: in the same network the answer takes milliseconds.
const directLimit = time.Second

func (p *plan) askServers(ctx context.Context, addresses map[string]string, port string) ([]byte, error) {
	var text []byte
	for _, n := range p.nodes() {
		if !n.controlPlane {
			continue
		}
		address, ok := addresses[n.name]
		if !ok {
			return nil, fmt.Errorf("no address of node %s is known", n.name)
		}
		limited, cancel := context.WithTimeout(ctx, directLimit)
		one, err := incluster.MetricsFrom("http://" + net.JoinHostPort(address, port) + "/metrics")(limited)
		cancel()
		if err != nil {
			return nil, err
		}
		text = append(append(text, one...), '\n')
	}
	return text, nil
}

// apiServerMetrics reads the metrics of every API server on its own node: the load
// balancer could lead to any of them.
func (p *plan) apiServerMetrics(ctx context.Context) ([]byte, error) {
	return p.onControlPlanes(ctx, "kubectl", "--kubeconfig=/etc/kubernetes/admin.conf", "--server="+loopbackURL(nodePort), "get", "--raw=/metrics")
}

// onControlPlanes runs a command in all control plane nodes, one after another,
// and returns what they printed.
func (p *plan) onControlPlanes(ctx context.Context, command string, args ...string) ([]byte, error) {
	library, err := p.existing(ctx)
	if err != nil {
		return nil, err
	}
	all, err := library.ListNodes(kindName(p.Name))
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	for _, want := range p.nodes() {
		for _, n := range all {
			if !want.controlPlane || n.String() != want.name {
				continue
			}
			var said bytes.Buffer
			if err := n.CommandContext(ctx, command, args...).SetStdout(&text).SetStderr(&said).Run(); err != nil {
				return nil, fmt.Errorf("node %s: %s: %w", want.name, bytes.TrimSpace(said.Bytes()), err)
			}
			text.WriteByte('\n')
		}
	}
	return text.Bytes(), nil
}
