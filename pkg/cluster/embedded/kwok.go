package embedded

import (
	"bytes"
	"fmt"
	"path/filepath"

	"k8s.io/utils/ptr"
	nodefast "sigs.k8s.io/kwok/kustomize/stage/node/fast"
	nodelease "sigs.k8s.io/kwok/kustomize/stage/node/heartbeat-with-lease"
	podfast "sigs.k8s.io/kwok/kustomize/stage/pod/fast"
	kwok "sigs.k8s.io/kwok/pkg/apis/v1alpha1"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/pkg/cluster/process"
)

// podCIDR is where the simulated Pods' addresses come from. Nothing routes them.
const podCIDR = "10.244.0.1/16"

// kwok simulates the nodes: it keeps their status and leases, and runs Pods by
// saying that they run. Its server plays the kubelet of all nodes.
func (p *plan) kwok() process.Spec {
	args := []string{
		"--config=" + p.kwokConfig(),
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

func (p *plan) kwokConfig() string { return filepath.Join(p.ConfigDir(), "kwok.yaml") }

// podLog is what every container says in its log. The file is in CRI's format.
func (p *plan) podLog() string { return filepath.Join(p.ConfigDir(), "pod.log") }

const (
	podLogWords = "This Pod runs on a simulated node: no container was started."
	podLogText  = "2026-01-01T00:00:00.000000000Z stdout F " + podLogWords + "\n"
)

// kwokConfiguration renders kwok's configuration: how nodes and Pods come to
// life, and what their logs, exec and port-forward answer. All answers are for
// one secret namespace only: see nodegate.
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
		// attach shows the log as it grows, which is never. Without an answer of its
		// own kwok's error would name the secret namespace.
		{kwok.ClusterAttachKind, kwok.ClusterAttachSpec{Selector: gate, Attaches: []kwok.AttachConfig{{LogsFile: ptr.To(p.podLog())}}}},
		// port-forward to any port gives back what it gets.
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
