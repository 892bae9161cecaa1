// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"

	"k8s.io/utils/ptr"
	nodefast "sigs.k8s.io/kwok/kustomize/stage/node/fast"
	nodelease "sigs.k8s.io/kwok/kustomize/stage/node/heartbeat-with-lease"
	podfast "sigs.k8s.io/kwok/kustomize/stage/pod/fast"
	kwok "sigs.k8s.io/kwok/pkg/apis/v1alpha1"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/pkg/cluster/process"
)

// podCIDR is the range of the simulated Pods' addresses. Nothing routes to them.
const podCIDR = "10.244.0.1/16"

// kwok simulates the nodes: it maintains their status and Leases, and sets the status
// of Pods to running without running them. Its server simulates the kubelets of all
// nodes.
func (p *plan) kwok() process.Spec {
	args := []string{
		"--config=" + listValue(p.kwokConfig()), // a list
		"--kubeconfig=" + p.Kubeconfig(progKwok),
		"--manage-all-nodes=true",
		"--node-ip=" + p.state.HostIP,
		"--node-port=" + p.port(portNodeGate),
		"--server-address=" + loopback + ":" + p.port(portKwok),
		"--node-lease-duration-seconds=40",
		"--cidr=" + podCIDR,
	}
	probe := &process.Probe{URL: p.url("http", portKwok, "/healthz")}
	return p.spec(progKwok, progKwok, args, probe, progAPIServer)
}

// listValue encodes one value of a flag that takes a comma-separated list, which is
// parsed as a line of CSV.
func listValue(value string) string {
	if !strings.ContainsAny(value, ",\"\r\n") {
		return value
	}
	return `"` + strings.ReplaceAll(value, `"`, `""`) + `"`
}

func (p *plan) kwokConfig() string { return filepath.Join(p.ConfigDir(), "kwok.yaml") }

// podLog is the log file of every container, in CRI format.
func (p *plan) podLog() string { return filepath.Join(p.ConfigDir(), "pod.log") }

const (
	podLogWords = "This Pod runs on a simulated node: no container was started."
	podLogText  = "2026-01-01T00:00:00.000000000Z stdout F " + podLogWords + "\n"
)

// kwokConfiguration renders kwok's configuration: how nodes and Pods become ready, and
// the responses of logs, exec and port-forward. The responses are for one secret
// namespace only: see nodegate.
func (p *plan) kwokConfiguration() ([]byte, error) {
	docs := [][]byte{
		[]byte(nodefast.DefaultNodeInit), []byte(nodelease.DefaultNodeHeartbeatWithLease),
		[]byte(podfast.DefaultPodReady), []byte(podfast.DefaultPodComplete), []byte(podfast.DefaultPodDelete),
	}
	gate := &kwok.ObjectSelector{MatchNamespaces: []string{p.nodeSecret}}
	answers := []struct {
		kind string
		spec any
	}{
		{kwok.ClusterLogsKind, kwok.ClusterLogsSpec{Selector: gate, Logs: []kwok.Log{{LogsFile: ptr.To(p.podLog())}}}},
		// exec runs the command as a process of this machine.
		{kwok.ClusterExecKind, kwok.ClusterExecSpec{Selector: gate, Execs: []kwok.ExecTarget{{Local: &kwok.ExecTargetLocal{}}}}},
		// attach follows the log, which never grows. Without this setting kwok's error
		// would contain the secret namespace.
		{kwok.ClusterAttachKind, kwok.ClusterAttachSpec{Selector: gate, Attaches: []kwok.AttachConfig{{LogsFile: ptr.To(p.podLog())}}}},
		// port-forward to any port echoes its input.
		{kwok.ClusterPortForwardKind, kwok.ClusterPortForwardSpec{Selector: gate, Forwards: []kwok.Forward{{Command: []string{"cat"}}}}},
	}
	for _, a := range answers {
		doc, err := yaml.Marshal(map[string]any{
			"apiVersion": kwok.GroupVersion.String(), "kind": a.kind,
			"metadata": map[string]string{"name": "fairlead"}, "spec": a.spec,
		})
		if err != nil {
			return nil, fmt.Errorf("rendering kwok's configuration: %w", err)
		}
		docs = append(docs, doc)
	}
	return bytes.Join(docs, []byte("\n---\n")), nil
}
