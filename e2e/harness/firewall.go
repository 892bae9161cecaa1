// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/kind/pkg/cluster/nodes"
)

// Firewall drops, in every control plane node, the packets that its own
// processes send to any kubelet and to Pods of other nodes. Answers to
// connections that other hosts opened, such as the agents', pass. Pods of the
// same node stay reachable: the kubelet of the node probes them, and a firewall
// cannot distinguish its packets from the API server's.
type Firewall struct {
	// Before and After are direct dials from a control plane without and with the rules.
	Before, After []DirectDial
	nodes         []nodes.Node
	targets       []string
}

// DirectDial is an attempt of a control plane node to connect without the
// tunnel.
type DirectDial struct {
	From, To string
	// Connected says that the TCP connection was established.
	Connected bool
}

const chain = "FAIRLEAD-E2E"

// RaiseFirewall puts the firewall into every control plane node. Dials before
// and after it show that it works. What goes to one of the cluster IPs passes: Konnectivity servers
// connect to these themselves (--local-destinations).
func (c *Cluster) RaiseFirewall(ctx context.Context, clusterIPs ...string) (*Firewall, error) {
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
		if err := raise(ctx, node, list.Items, clusterIPs); err != nil {
			return nil, err
		}
	}
	f.After = f.Dial(ctx)
	return f, nil
}

func raise(ctx context.Context, node nodes.Node, all []corev1.Node, clusterIPs []string) error {
	script := []string{"set -e", iptables + "-N " + chain}
	for _, ip := range clusterIPs { // kube-proxy has replaced the destination by an endpoint already
		script = append(script, iptables+"-A "+chain+" -m conntrack --ctorigdst "+ip+" -j RETURN")
	}
	drop := func(match string) {
		script = append(script, iptables+"-A "+chain+" "+match+" -m conntrack --ctdir ORIGINAL -j DROP")
	}
	for _, n := range all {
		drop("-d " + internalIP(n) + " -p tcp --dport 10250")
		if n.Name != node.String() {
			drop("-d " + n.Spec.PodCIDR)
		}
	}
	// Last, so that the chain is whole when it takes effect.
	script = append(script, iptables+"-I OUTPUT 1 -j "+chain)
	_, err := Run(ctx, node, "sh", "-c", strings.Join(script, "\n"))
	return err
}

// iptables begins a command that waits for others' changes.
const iptables = "iptables -w 10 "

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

// Lower removes the firewall.
func (f *Firewall) Lower(ctx context.Context) error {
	for _, node := range f.nodes {
		script := fmt.Sprintf("set -e\n%[1]s-D OUTPUT -j %[2]s\n%[1]s-F %[2]s\n%[1]s-X %[2]s", iptables, chain)
		if _, err := Run(ctx, node, "sh", "-c", script); err != nil {
			return err
		}
	}
	return nil
}

// Dial tries to reach kubelets of workers and the server's Pod from every
// control plane node, without the tunnel.
func (f *Firewall) Dial(ctx context.Context) []DirectDial {
	all := make([]DirectDial, len(f.nodes)*len(f.targets))
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() { all[i] = dialFrom(ctx, f.nodes[i/len(f.targets)], f.targets[i%len(f.targets)]) })
	}
	wg.Wait()
	return all
}

func dialFrom(ctx context.Context, node nodes.Node, target string) DirectDial {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	// bash is in every node image, nc and curl may not be.
	script := fmt.Sprintf("exec 3<>/dev/tcp/%s", strings.Replace(target, ":", "/", 1))
	_, err := Run(ctx, node, "timeout", "2", "bash", "-c", script)
	return DirectDial{From: node.String(), To: target, Connected: err == nil}
}

// Tight returns an error unless every direct dial has connected before the
// firewall was raised, without which it would prove nothing, and none after.
func (f *Firewall) Tight() error {
	var errs []error
	for i, after := range f.After {
		if before := f.Before[i]; !before.Connected || after.Connected {
			errs = append(errs, fmt.Errorf("from %s to %s: connected %t without the firewall and %t with it, want true and false",
				after.From, after.To, before.Connected, after.Connected))
		}
	}
	if want := len(f.nodes) * len(f.targets); want < 2 || len(f.After) != want {
		errs = append(errs, fmt.Errorf("%d direct dials were made, want %d", len(f.After), want))
	}
	return errors.Join(errs...)
}

// FailOnDrop makes a test fail if a process tries to bypass the tunnel during
// the test.
func (f *Firewall) FailOnDrop(ctx context.Context, t *testing.T) {
	t.Helper()
	count := func() int {
		n, err := f.Dropped(context.WithoutCancel(ctx))
		if err != nil {
			t.Error(err)
		}
		return n
	}
	before := count()
	t.Cleanup(func() {
		if after := count(); after != before {
			t.Errorf("the firewall dropped %d packets: something tried to go past the tunnel", after-before)
		}
	})
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
