// SPDX-License-Identifier: Apache-2.0

package connect

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/fairlead-dev/fairlead/pkg/gateway/resolve"
)

// TestRefusalsTellNothing: without the right to a destination, the answer does not say whether it exists or which object
// has an address, and for a name nothing is read and no DNS server is asked.
func TestRefusalsTellNothing(t *testing.T) {
	client := fake.NewClientset(
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "secret", Name: "vault"}, Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.5", Ports: []corev1.ServicePort{{Port: 80}}}},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "secret", Name: "vault-0"}, Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.244.0.9", PodIPs: []corev1.PodIP{{IP: "10.244.0.9"}}}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}, Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.20"}}}})
	var asked []string
	w := newWorld(t, func(net.Conn) {}, func(c *Config) {
		c.Resolver = resolve.New(client, resolve.Options{LookUp: func(_ context.Context, host string) ([]netip.Addr, error) {
			asked = append(asked, host)
			return []netip.Addr{netip.MustParseAddr("198.51.100.7")}, nil
		}})
	}, "create tunnelagents/portforward  a1")
	status := func(host string, port int) string {
		_, s := w.dial("alice", host, port)
		if s == nil || s.Code != 403 {
			t.Errorf("%s:%d: %+v", host, port, s)
			return ""
		}
		return strings.ReplaceAll(s.Message, host, "HOST")
	}
	want := status("nothing.secret.svc", 80)
	for _, host := range []string{"vault.secret.svc", "node-1", "node-2", "db.example.com"} {
		if got := status(host, 80); got != want {
			t.Errorf("%s: %q, others: %q", host, got, want)
		}
	}
	if len(client.Actions()) > 0 || len(asked) > 0 {
		t.Errorf("without a right, these were read: %v, and looked up: %q", client.Actions(), asked)
	}
	for _, host := range []string{"10.96.0.5", "10.244.0.9", "192.0.2.20", "10.244.0.10", "10-244-0-9.secret.pod", "10-244-0-10.secret.pod", "127.0.0.1"} {
		if got := status(host, 80); got != want {
			t.Errorf("%s: %q, others: %q", host, got, want)
		}
	}
	if got := status("10.96.0.5", 81); got != strings.ReplaceAll(want, ":80", ":81") {
		t.Errorf("a port that no Service has: %q", got)
	}
	w.rights["connect destinations/addresses  db.example.com:80"] = true
	if status("db.example.com", 80); len(asked) != 1 {
		t.Errorf("with the right to the name, these were looked up: %q", asked)
	}
}
