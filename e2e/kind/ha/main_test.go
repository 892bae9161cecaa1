// SPDX-License-Identifier: Apache-2.0

// Package ha_test tests a cluster with three control planes. Every API server
// reaches every node through its own Konnectivity server, agents learn the number
// of servers from the Leases, and the loss of a server or of a whole control
// plane affects only its own connections. A firewall in the control plane nodes
// allows only the tunnel.
package ha_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/e2e-framework/pkg/envconf"
	"sigs.k8s.io/e2e-framework/pkg/features"
	"sigs.k8s.io/kind/pkg/cluster/nodes"

	"github.com/fairlead-dev/fairlead/e2e/harness"
	"github.com/fairlead-dev/fairlead/internal/testutil"
)

// tunnelAPI is the cluster IP of the extension API server, to which Konnectivity servers connect themselves.
const tunnelAPI = "10.96.0.93"

// suite is the cluster of all tests of this package, servers its API servers, one
// by one instead of through the load balancer, and firewall what lets nothing but
// the tunnel through in each control plane node.
var (
	suite = harness.New(harness.Options{
		Name: harness.ClusterName("ha"), Only: harness.Kind,
		ControlPlanes: 3, Workers: 2,
		Bundle: "konnectivity: {leaseCounting: true}\ntunnelAPI: {enabled: true, clusterIP: " + tunnelAPI + "}",
	}, prepare)
	servers  []apiServer
	firewall *harness.Firewall
)

// apiServer is one of several.
type apiServer struct {
	node nodes.Node
	*harness.Cluster
}

func TestMain(m *testing.M) {
	suite.BeforeEveryTest(func(ctx context.Context, _ *envconf.Config, t *testing.T) (context.Context, error) {
		firewall.FailOnDrop(ctx, t)
		return ctx, nil
	})
	os.Exit(suite.Main(m))
}

func prepare(ctx context.Context, c *harness.Cluster) (err error) {
	for _, node := range c.Nodes.ControlPlanes {
		ip, err := harness.Address(node)
		if err != nil {
			return err
		}
		at, err := c.At("https://" + net.JoinHostPort(ip, "6443"))
		if err != nil {
			return err
		}
		servers = append(servers, apiServer{node, at})
	}
	if _, err := c.StartServer(ctx); err != nil {
		return err
	}
	for _, node := range c.Nodes.All() {
		pod := c.NewPod(podOn(node), "serve")
		pod.Spec.NodeName = node.String()
		pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		if err := c.StartPod(ctx, pod); err != nil {
			return err
		}
	}
	if err := waitForCount(ctx, c.Client, 3); err != nil {
		return err
	}
	if err := waitForAgents(ctx, c.Client); err != nil {
		return err
	}
	firewall, err = c.RaiseFirewall(ctx, tunnelAPI)
	return err
}

// podOn is the name of the test Pod on a node.
func podOn(node nodes.Node) string { return "on-" + node.String() }

// check is one thing that must hold, within a time limit.
func check(t *testing.T, name string, limit time.Duration, do func(context.Context, *testing.T)) {
	testutil.Limit(t, limit)
	suite.Test(t, features.New(t.Name()).Assess(name, func(ctx context.Context, t *testing.T, _ *envconf.Config) context.Context {
		limited, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		do(limited, t)
		return ctx
	}).Feature())
}

// reaches makes one call of each kind from an API server to a node.
func (s apiServer) reaches(ctx context.Context, node nodes.Node) error {
	ctx, cancel := context.WithTimeout(ctx, 40*time.Second)
	defer cancel()
	if err := s.NodeHealthz(ctx, node.String()); err != nil {
		return fmt.Errorf("node proxy: %w", err)
	}
	log, err := s.Logs(ctx, podOn(node), corev1.PodLogOptions{})
	if err != nil {
		return fmt.Errorf("logs: %w", err)
	}
	_ = log.Close()
	var out text
	if err := s.Exec(ctx, podOn(node), s.Tool("say", "hello"), harness.Streams{Stdout: &out}); err != nil || string(out) != "hello\n" {
		return errors.Join(err, fmt.Errorf("exec: %q", out))
	}
	body, err := s.Client.CoreV1().Pods(harness.Namespace).ProxyGet("http", podOn(node), "8080", "healthz", nil).DoRaw(ctx)
	if err != nil || string(body) != "ok" {
		return errors.Join(err, fmt.Errorf("pod proxy: %q", body))
	}
	return nil
}

type text []byte

func (t *text) Write(p []byte) (int, error) {
	*t = append(*t, p...)
	return len(p), nil
}

// waitForCount waits until want servers have a Lease, and every agent knows about
// that many servers and is connected to them.
func waitForCount(ctx context.Context, client kubernetes.Interface, want int) error {
	// A Lease lasts 30 s and is swept every 15 s; agents look every 10 s at most.
	return harness.Wait(ctx, 2*time.Minute, fmt.Sprintf("%d servers to be counted", want), func(ctx context.Context) error {
		if n, err := liveLeases(ctx, client); err != nil || n != want {
			return errors.Join(err, fmt.Errorf("there are %d Leases", n))
		}
		agents, err := client.CoreV1().Pods(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{LabelSelector: "k8s-app=konnectivity-agent"})
		if err != nil || len(agents.Items) < 2 {
			return errors.Join(err, fmt.Errorf("there are %d agents", len(agents.Items)))
		}
		for _, agent := range agents.Items {
			for _, metric := range []string{"known_server_count", "open_server_connections"} {
				got, err := agentMetric(ctx, client, agent.Name, metric)
				if err != nil || got != want {
					return errors.Join(err, fmt.Errorf("%s of %s is %d", metric, agent.Name, got))
				}
			}
		}
		return nil
	})
}
