// SPDX-License-Identifier: Apache-2.0

package suite_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/kind/pkg/cluster/nodes"

	"github.com/fairlead-dev/fairlead/e2e/harness"
	"github.com/fairlead-dev/fairlead/internal/testutil"
)

// onNodes skips a test of faults where nodes are simulated: e2e/tunnel and e2e/embedded cause these faults in processes.
func onNodes(t *testing.T) {
	t.Helper()
	if suite.Simulated() {
		t.Skip("simulated nodes have neither a network nor a kubelet that restarts containers")
	}
}

// onNodesOrMain is onNodes for faults that `make test` causes in processes.
func onNodesOrMain(t *testing.T) {
	t.Helper()
	if !testutil.Main() {
		onNodes(t)
	}
}

// sh runs a script in a node.
func sh(ctx context.Context, node nodes.Node, script string) error {
	_, err := harness.Run(ctx, node, "sh", "-c", script)
	return err
}

// TestAgentKilled: the agent of a node is killed. Those of other nodes serve, and the kubelet, or the supervisor of simulated nodes, starts it again.
func TestAgentKilled(t *testing.T) {
	onNodesOrMain(t)
	kill := func(ctx context.Context) error { return sh(ctx, aWorker(suite.Nodes), "pkill -KILL -f ^/proxy-agent") }
	if suite.Simulated() {
		kill = func(ctx context.Context) error { return suite.Kill(ctx, "konnectivity-agent-0") }
	}
	dialsWhile(t, "agent killed", kill)
}

// TestAgentStopped: the agent of a node is stopped for 5 s.
func TestAgentStopped(t *testing.T) {
	whileCaused(t, "agent stopped", aWorker, "pkill -STOP -f ^/proxy-agent && sleep 5; pkill -CONT -f ^/proxy-agent")
}

// TestServerKilled: the only server is killed, and the kubelet starts it again.
func TestServerKilled(t *testing.T) {
	whileCaused(t, "server killed", aControlPlane, "pkill -KILL -f ^/proxy-server")
}

// aWorker and aControlPlane choose a node of a kind cluster.
func aWorker(n *harness.Nodes) nodes.Node       { return n.Workers[0] }
func aControlPlane(n *harness.Nodes) nodes.Node { return n.ControlPlanes[0] }

// whileCaused dials while a script causes a fault in a node. Dials have to succeed again, and both agents to be back.
func whileCaused(t *testing.T, fault string, choose func(*harness.Nodes) nodes.Node, script string) {
	t.Helper()
	onNodes(t)
	dialsWhile(t, fault, func(ctx context.Context) error { return sh(ctx, choose(suite.Nodes), script) })
}

// dialsWhile dials while a fault is caused.
func dialsWhile(t *testing.T, fault string, cause func(context.Context) error) {
	t.Helper()
	run(t, fault, 4*time.Minute, step{"dials succeed again", func(ctx context.Context, t *testing.T) {
		unavailable(ctx, t, "a dial", dialsPerSecond, dial, cause)
		wantBothAgents(ctx, t)
	}})
}

// TestSilentNetwork: the network between a node's agent and the server loses all packets of one direction for 30 s.
func TestSilentNetwork(t *testing.T) {
	onNodes(t)
	for name, match := range map[string]string{"from the agent": "--dport 8132", "to the agent": "--sport 8132"} {
		run(t, "silent "+name, 4*time.Minute, step{"another agent serves", func(ctx context.Context, t *testing.T) {
			unavailable(ctx, t, "a dial", dialsPerSecond, dial, func(ctx context.Context) error { return withRule(ctx, match, 30*time.Second) })
			wantBothAgents(ctx, t)
		}})
	}
}

// TestLossyNetwork: the network between a node's agent and the server loses one of ten packets in each direction. No byte of long streams
// differs.
func TestLossyNetwork(t *testing.T) {
	onNodes(t)
	run(t, "lossy network", 4*time.Minute, step{"no byte differs", func(ctx context.Context, t *testing.T) {
		streams, err := harness.StartStreams(ctx, streamsOfEach, suite.LongStreams())
		if err != nil {
			t.Fatal(err)
		}
		unavailable(ctx, t, "a dial", dialsPerSecond, dial, func(ctx context.Context) error {
			const tenth = " -m statistic --mode random --probability 0.1"
			other := make(chan error, 1)
			go func() { other <- withRule(ctx, "--sport 8132"+tenth, 15*time.Second) }()
			return errors.Join(withRule(ctx, "--dport 8132"+tenth, 15*time.Second), <-other)
		})
		count := streams.Stop()
		t.Log(count)
		for _, b := range count.Broken {
			if strings.Contains(b, harness.ErrCorrupt.Error()) {
				t.Errorf("a byte differs: %s", b)
			}
		}
		wantBothAgents(ctx, t)
	}})
}

// withRule drops the packets of a node's Pods that match, for a time.
func withRule(ctx context.Context, match string, lasts time.Duration) error {
	rule := "FORWARD -p tcp " + match + " -j DROP"
	node := suite.Nodes.Workers[0]
	if err := sh(ctx, node, "iptables -w 10 -I "+rule); err != nil {
		return err
	}
	time.Sleep(lasts) // how long the fault lasts
	return sh(context.WithoutCancel(ctx), node, "iptables -w 10 -D "+rule)
}

// TestAPIServerKilled: kube-apiserver is killed, and the kubelet starts it again. Server and agents go on with the connections
// that they have.
func TestAPIServerKilled(t *testing.T) {
	onNodes(t)
	run(t, "API server killed", 5*time.Minute, step{"the tunnel lives on", func(ctx context.Context, t *testing.T) {
		began := time.Now()
		unavailable(ctx, t, "a dial", dialsPerSecond, dial, func(ctx context.Context) error {
			return sh(ctx, suite.Nodes.ControlPlanes[0], "pkill -KILL -x kube-apiserver")
		})
		wantBothAgents(ctx, t)
		agents, err := connectedAgents(ctx)
		for name, a := range agents {
			if len(a.Status.Servers) > 0 && a.Status.Servers[0].Since.After(began) {
				t.Errorf("agent %s has connected again at %s, and kube-apiserver was killed at %s", name, a.Status.Servers[0].Since, began)
			}
		}
		if err != nil {
			t.Error(err)
		}
	}})
}

// TestSchedulerKilled: the leader of the second scheduler is killed. Pods wait until its standby leads.
func TestSchedulerKilled(t *testing.T) {
	onNodesOrMain(t)
	run(t, "leader of the second scheduler killed", 4*time.Minute, step{"another leads", func(ctx context.Context, t *testing.T) {
		kill := killLeader
		if suite.Simulated() {
			kill = func(ctx context.Context) error { return suite.Kill(ctx, leadingProcess(ctx, t)) }
		}
		unavailable(ctx, t, "the binding of a Pod", 2, bound, kill)
	}})
}

// leadingProcess is the replica of the second scheduler that leads, by its own metric: the identities in the Lease do not tell the processes apart.
func leadingProcess(ctx context.Context, t *testing.T) (leader string) {
	t.Helper()
	ports := portsOf(t)
	if err := harness.Wait(ctx, 30*time.Second, "a replica of the second scheduler to lead", func(ctx context.Context) error {
		for _, name := range []string{"second-scheduler-0", "second-scheduler-1"} {
			config := rest.CopyConfig(suite.Config)
			config.Host, config.Insecure, config.CAData = fmt.Sprintf("https://127.0.0.1:%d", ports[name]), true, nil
			client, err := kubernetes.NewForConfig(config)
			if err != nil {
				return err
			}
			metrics, err := client.CoreV1().RESTClient().Get().AbsPath("/metrics").Do(ctx).Raw()
			if err == nil && leads.Match(metrics) {
				leader = name
				return nil
			}
		}
		return errors.New("none leads")
	}); err != nil {
		t.Fatal(err)
	}
	return leader
}

// leads is the line of the metrics of a replica that leads.
var leads = regexp.MustCompile(`(?m)^leader_election_master_status\{.*\} 1$`)

// killLeader kills the process of the second scheduler that holds the Lease.
func killLeader(ctx context.Context) error {
	lease, err := suite.Client.CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, "my-scheduler", metav1.GetOptions{})
	if err != nil || lease.Spec.HolderIdentity == nil {
		return errors.Join(err, errors.New("no replica of the second scheduler leads"))
	}
	name, _, _ := strings.Cut(*lease.Spec.HolderIdentity, "_")
	pod, err := suite.Client.CoreV1().Pods(metav1.NamespaceSystem).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	// Its processes are those whose control group has the Pod's UID.
	script := fmt.Sprintf(`for p in $(pgrep -f '^/usr/local/bin/kube-scheduler --config=/etc/kubernetes/my-scheduler'); do grep -q -e %s -e %s /proc/$p/cgroup && kill -KILL $p && exit 0; done; exit 1`,
		pod.UID, strings.ReplaceAll(string(pod.UID), "-", "_"))
	for _, node := range suite.Nodes.All() {
		if node.String() == pod.Spec.NodeName {
			return sh(ctx, node, script)
		}
	}
	return fmt.Errorf("there is no node %s", pod.Spec.NodeName)
}

// bound creates a Pod for the second scheduler, waits until it has a node, and deletes it. No container of it starts.
func bound(ctx context.Context) error {
	pods := suite.Client.CoreV1().Pods(harness.Namespace)
	pod := suite.NewPod("", "serve")
	pod.GenerateName, pod.Spec.SchedulerName = "bound-", "my-scheduler"
	pod.Spec.Containers[0].Image = "none"
	created, err := pods.Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	defer func() {
		_ = pods.Delete(context.WithoutCancel(ctx), created.Name, *metav1.NewDeleteOptions(0))
	}()
	return harness.Wait(ctx, 35*time.Second, "Pod "+created.Name+" to be bound", func(ctx context.Context) error {
		got, err := pods.Get(ctx, created.Name, metav1.GetOptions{})
		if err == nil && got.Spec.NodeName == "" {
			err = errors.New("it has no node")
		}
		return err
	})
}

// wantBothAgents waits until the agents of all workers are ready and connected.
func wantBothAgents(ctx context.Context, t *testing.T) {
	t.Helper()
	if suite.Simulated() {
		if err := suite.Agents().Start(ctx); err != nil { // returns once all are ready
			t.Error(err)
		}
		return
	}
	if err := harness.Wait(ctx, 2*time.Minute, "both agents to be ready and connected", func(ctx context.Context) error {
		list, err := suite.Client.CoreV1().Pods(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{LabelSelector: "k8s-app=konnectivity-agent"})
		if err != nil {
			return err
		}
		ready := 0
		for _, p := range list.Items {
			for _, c := range p.Status.Conditions {
				if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
					ready++
				}
			}
		}
		agents, err := connectedAgents(ctx)
		if want := len(suite.Nodes.Workers); ready != want || len(agents) != want {
			return errors.Join(err, fmt.Errorf("%d of %d are ready, and %d connected", ready, want, len(agents)))
		}
		return err
	}); err != nil {
		t.Error(err)
	}
}
