// SPDX-License-Identifier: Apache-2.0

package suite_test

import (
	"context"
	"io"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fairlead-dev/fairlead/e2e/harness"
)

// socks5Way is "fairlead socks5", through which kubectl reaches an API server at an address to
// which it leads. That of an embedded cluster is on loopback alone. There a Service leads to it,
// by this machine's own address, which the Pod of the suite's server has.
func socks5Way(t *testing.T, name string, env []string, args ...string) wayIn {
	t.Helper()
	args = slices.Concat([]string{"socks5", "--listen", "127.0.0.1:0"}, args)
	way := wayIn{name: name, context: "socks5-" + suite.Context(), env: env, log: []string{`protocol="socks5"`}}
	if !suite.Simulated() {
		server := net.JoinHostPort(controlPlaneAddress(t), "6443")
		way.args = append(args, "--kubeconfig", kubeconfigOf(t, "https://"+server))
		way.log = append(way.log, server, `result="ok"`)
		return way
	}
	way.args = append(args, "--kubeconfig", suite.Kubeconfig())
	way.log = append(way.log, `kind="Service"`, `name="api"`)
	way.reach = func(ctx context.Context, t *testing.T, c *clientcmdapi.Cluster) {
		exposeServer(ctx, t, "api", harness.ServerName, 6443, intstr.FromInt(forwardFrom(ctx, t, c.Server)))
		c.Server, c.TLSServerName = "https://api."+harness.Namespace+".svc:6443", "localhost"
	}
	return way
}

// forwardFrom forwards a port of this machine's own address to a server, and returns it.
func forwardFrom(ctx context.Context, t *testing.T, server string) int {
	t.Helper()
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	pod, err := suite.Client.CoreV1().Pods(harness.Namespace).Get(ctx, harness.ServerName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(pod.Status.PodIP, "0"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var open sync.WaitGroup
	open.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			open.Go(func() { forwardTo(ctx, c, u.Host) })
		}
	})
	t.Cleanup(func() { _ = l.Close(); cancel(); open.Wait() })
	return l.Addr().(*net.TCPAddr).Port
}

// forwardTo joins a connection with one to an address, until both directions or ctx end.
func forwardTo(ctx context.Context, c net.Conn, address string) {
	defer c.Close()
	d, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return
	}
	defer d.Close()
	stop := context.AfterFunc(ctx, func() { _ = c.Close(); _ = d.Close() })
	defer stop()
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{c, d}, {d, c}} {
		both.Go(func() {
			_, _ = io.Copy(way[0], way[1])
			_ = way[0].(*net.TCPConn).CloseWrite()
		})
	}
	both.Wait()
}

// controlPlaneAddress is the address of a node that runs an API server.
func controlPlaneAddress(t *testing.T) string {
	t.Helper()
	nodes, err := suite.Client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{LabelSelector: "node-role.kubernetes.io/control-plane"})
	if err != nil || len(nodes.Items) == 0 {
		t.Fatalf("control plane nodes: %v, %v", nodes, err)
	}
	for _, a := range nodes.Items[0].Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			return a.Address
		}
	}
	t.Fatalf("node %s has no address", nodes.Items[0].Name)
	return ""
}

// kubeconfigOf is the suite's kubeconfig with another URL of the API server.
func kubeconfigOf(t *testing.T, server string) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(suite.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	config.Clusters[config.Contexts[suite.Context()].Cluster].Server = server
	config.CurrentContext = suite.Context()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}
