package harness

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/kind/pkg/cluster/nodes"
)

// Firewall drops, in every control plane node, what its own processes send to
// any kubelet and to Pods of other nodes. Answers to connections that others
// have opened, such as the agents', pass. Pods of the same node stay in reach:
// the kubelet beside the API server probes them, and a packet does not tell the
// two apart.
type Firewall struct {
	// Before and After are direct dials from a control plane without and with the rules.
	Before, After []DirectDial
	nodes         []nodes.Node
	targets       []string
}

// DirectDial is an attempt of a control plane node to reach something by itself.
type DirectDial struct {
	From, To string
	// Connected says that TCP came to be.
	Connected bool
}

const chain = "FAIRLEAD-E2E"

// RaiseFirewall puts the firewall into every control plane node. Dials before
// and after it show that it works.
func (c *Cluster) RaiseFirewall(ctx context.Context) (*Firewall, error) {
	list, err := c.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	pod, err := c.Client.CoreV1().Pods(Namespace).Get(ctx, ServerName, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	f := &Firewall{nodes: c.Nodes.ControlPlanes, targets: []string{pod.Status.PodIP + ":8080"}}
	for _, n := range list.Items {
		if ip := internalIP(n); !isControlPlane(n) {
			f.targets = append(f.targets, ip+":10250")
		}
	}
	_ = f.Lower(ctx) // that an earlier run with the same cluster has left
	f.Before = f.Dial(ctx)
	for _, node := range f.nodes {
		if err := raise(ctx, node, list.Items); err != nil {
			return nil, err
		}
	}
	f.After = f.Dial(ctx)
	return f, nil
}

func raise(ctx context.Context, node nodes.Node, all []corev1.Node) error {
	commands := [][]string{{"-N", chain}}
	drop := func(args ...string) {
		args = append([]string{"-A", chain}, args...)
		commands = append(commands, append(args, "-m", "conntrack", "--ctdir", "ORIGINAL", "-j", "DROP"))
	}
	for _, n := range all {
		drop("-d", internalIP(n), "-p", "tcp", "--dport", "10250")
		if n.Name != node.String() {
			drop("-d", n.Spec.PodCIDR)
		}
	}
	// Last, so that the chain is whole when it takes effect.
	commands = append(commands, []string{"-I", "OUTPUT", "1", "-j", chain})
	for _, args := range commands {
		if _, err := Run(ctx, node, "iptables", append([]string{"-w", "10"}, args...)...); err != nil {
			return err
		}
	}
	return nil
}

func internalIP(n corev1.Node) string {
	for _, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			return a.Address
		}
	}
	return ""
}

func isControlPlane(n corev1.Node) bool {
	_, ok := n.Labels["node-role.kubernetes.io/control-plane"]
	return ok
}

// Lower takes the firewall away.
func (f *Firewall) Lower(ctx context.Context) error {
	for _, node := range f.nodes {
		for _, args := range [][]string{{"-D", "OUTPUT", "-j", chain}, {"-F", chain}, {"-X", chain}} {
			if _, err := Run(ctx, node, "iptables", append([]string{"-w", "10"}, args...)...); err != nil {
				return err
			}
		}
	}
	return nil
}

// Dial tries to reach kubelets of workers and the server's Pod from every
// control plane node, past the tunnel.
func (f *Firewall) Dial(ctx context.Context) []DirectDial {
	var all []DirectDial
	for _, node := range f.nodes {
		for _, target := range f.targets {
			dialCtx, cancel := context.WithTimeout(ctx, 5*time.Second)
			// bash is in every node image, nc and curl may not be.
			script := fmt.Sprintf("exec 3<>/dev/tcp/%s", strings.Replace(target, ":", "/", 1))
			_, err := Run(dialCtx, node, "timeout", "2", "bash", "-c", script)
			cancel()
			all = append(all, DirectDial{From: node.String(), To: target, Connected: err == nil})
		}
	}
	return all
}

// Dropped returns how many packets the firewall has dropped in all nodes.
func (f *Firewall) Dropped(ctx context.Context) (packets int, err error) {
	for _, node := range f.nodes {
		out, err := Run(ctx, node, "iptables", "-w", "10", "-nvxL", chain)
		if err != nil {
			return 0, err
		}
		for line := range strings.Lines(out) {
			var n int
			if _, err := fmt.Sscan(line, &n); err == nil && strings.Contains(line, "DROP") {
				packets += n
			}
		}
	}
	return packets, nil
}
