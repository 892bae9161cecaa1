// SPDX-License-Identifier: Apache-2.0

package suite_test

import (
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
)

// socks5Way is "fairlead socks5", through which kubectl reaches an API server at an address to
// which it leads. That of an embedded cluster is on loopback, to which a proxy on loopback leads for
// the API server alone. The first part of its log is the protocol.
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
	way.log = append(way.log, `destination="`+strings.TrimPrefix(suite.Config.Host, "https://")+`"`)
	return way
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
