// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
	"github.com/fairlead-dev/fairlead/pkg/gateway/internal/clustertest"
)

// populate makes one of each kind of object that a name or an address can stand for.
func populate(c *clustertest.Cluster) {
	c.Namespace("shop")
	c.Node("node-1", "192.0.2.1", func(n *corev1.Node) { n.Spec.PodCIDRs = []string{"10.1.0.0/24", "fd00:1::/64"} })
	c.Node("ip-2.example.internal", "192.0.2.2", func(n *corev1.Node) {
		// What a kubelet writes cannot take over other hosts.
		n.Status.Addresses = append(n.Status.Addresses,
			corev1.NodeAddress{Type: corev1.NodeInternalDNS, Address: "Two.Nodes.Example"}, corev1.NodeAddress{Type: corev1.NodeHostName, Address: "vault.example"},
			corev1.NodeAddress{Type: corev1.NodeHostName, Address: "Second"}, corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: "198.51.100.2"})
	})
	c.Pod("shop", "web-1", "node-1", []string{"10.1.0.1", "fd00:1::1"})
	c.Pod("shop", "web-2", "node-1", []string{"10.1.0.2"})
	c.Pod("shop", "leaving-1", "node-1", []string{"10.1.0.8"})
	c.Pod("shop", "done", "node-1", []string{"10.1.0.9"}, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
	c.Pod("default", "host", "node-1", []string{"192.0.2.1"}, func(p *corev1.Pod) { p.Spec.HostNetwork = true })

	dual := corev1.IPFamilyPolicyPreferDualStack
	c.Service("shop", "web", corev1.ServiceSpec{
		ClusterIP: "10.0.0.10", ClusterIPs: []string{"10.0.0.10", "fd00:10::10"}, IPFamilyPolicy: &dual,
		Ports: []corev1.ServicePort{
			{Name: "http", Port: 80, TargetPort: intstr.FromString("http")},
			{Name: "admin", Port: 81, TargetPort: intstr.FromInt32(9000)},
			{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP},
		},
	})
	ports := []discoveryv1.EndpointPort{clustertest.Port("http", 8080), clustertest.Port("admin", 9000)}
	c.Slice("shop", "web", "web-a", discoveryv1.AddressTypeIPv4, ports,
		clustertest.Endpoint("shop", "web-1", "10.1.0.1", true), clustertest.Endpoint("shop", "web-2", "10.1.0.2", true),
		clustertest.Endpoint("shop", "web-3", "10.1.0.3", false))
	c.Slice("shop", "web", "web-b", discoveryv1.AddressTypeIPv6, []discoveryv1.EndpointPort{clustertest.Port("http", 8081)},
		clustertest.Endpoint("shop", "web-1", "fd00:1::1", true))

	c.Service("shop", "db", corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Ports: []corev1.ServicePort{{Port: 5432}}})
	db := clustertest.Endpoint("shop", "db-0", "10.1.0.5", true)
	db.Hostname = new("db-0")
	c.Slice("shop", "db", "db-a", discoveryv1.AddressTypeIPv4, []discoveryv1.EndpointPort{clustertest.Port("", 5432)}, db)

	c.Service("shop", "empty", corev1.ServiceSpec{ClusterIP: "10.0.0.11", Ports: []corev1.ServicePort{{Port: 80}}})
	c.Slice("shop", "empty", "empty-a", discoveryv1.AddressTypeIPv4, []discoveryv1.EndpointPort{clustertest.Port("", 80)}, clustertest.Endpoint("shop", "x", "10.1.0.7", false))

	c.Service("shop", "leaving", corev1.ServiceSpec{ClusterIP: "10.0.0.12", Ports: []corev1.ServicePort{{Port: 80}}})
	leaving := clustertest.Endpoint("shop", "leaving-1", "10.1.0.8", false)
	leaving.Conditions.Serving, leaving.Conditions.Terminating = new(true), new(true)
	c.Slice("shop", "leaving", "leaving-a", discoveryv1.AddressTypeIPv4, []discoveryv1.EndpointPort{clustertest.Port("", 80)}, leaving)

	c.Service("shop", "lure", corev1.ServiceSpec{ClusterIP: "10.0.0.13", Ports: []corev1.ServicePort{{Port: 80}}})
	c.Slice("shop", "lure", "lure-a", discoveryv1.AddressTypeIPv4, []discoveryv1.EndpointPort{clustertest.Port("", 80)}, clustertest.Endpoint("kube-system", "etcd", "10.1.0.6", true))

	for name, target := range map[string]string{
		"out": "db.example.com", "in": "web.shop.svc.cluster.local", "loop-a": "loop-b.shop.svc.cluster.local",
		"loop-b": "loop-a.shop.svc.cluster.local", "short": "web.shop",
	} {
		c.Service("shop", name, corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: target})
	}
}

// summary is what the tests compare of a destination.
func summary(d gateway.Destination) string {
	s := fmt.Sprintf("%s %s/%s %s", d.Kind, d.Namespace, d.Name, d.Addr)
	if d.Pod.Name != "" {
		s += " pod " + d.Pod.String()
	}
	return s
}

// TestResolve runs the tests of resolution against a fake clientset.
func TestResolve(t *testing.T) {
	testResolve(t, clustertest.Fake(t))
}

// TestResolveFromAPIServer runs them against a real API server: it evaluates the field selectors and the RBAC rules that the
// fake imitates, validates the objects and sets their defaults, and answers from its watch cache.
func TestResolveFromAPIServer(t *testing.T) {
	testResolve(t, clustertest.Start(t, "--service-cluster-ip-range=10.0.0.0/24,fd00:10::/108"))
}

func testResolve(t *testing.T, c *clustertest.Cluster) {
	populate(c)
	r := New(c.Client, Options{Namespace: "shop"})
	t.Run("hosts", func(t *testing.T) { hosts(t, r) })
	t.Run("refused", func(t *testing.T) { refusals(t, r) })
	t.Run("foreign endpoints", func(t *testing.T) { foreignEndpoints(t, c) })
	t.Run("Service kubernetes", func(t *testing.T) { apiServerService(t, c) })
	t.Run("headless ports", func(t *testing.T) { headlessPorts(t, c) })
	t.Run("Services of Pods", func(t *testing.T) { podsServices(t, c) })
	t.Run("outer addresses", func(t *testing.T) { outerAddresses(t, c) })
	t.Run("look-ups", func(t *testing.T) { lookUps(t, c) })
	t.Run("requests", func(t *testing.T) { requests(t, c) })
	t.Run("second family", func(t *testing.T) { secondFamily(t, c) })
	t.Run("spread", func(t *testing.T) { spread(t, r) })
	t.Run("rights", func(t *testing.T) { rights(t, c) })
	t.Run("changes", func(t *testing.T) { changes(t, c) })
	t.Run("nodes with one address", func(t *testing.T) { nodesWithOneAddress(t, c) })
}

// hosts: names and addresses lead to the objects that they lead to in the cluster.
func hosts(t *testing.T, r *Resolver) {
	const web1, web2, web6 = "Service shop/web 10.1.0.1:8080 pod shop/web-1", "Service shop/web 10.1.0.2:8080 pod shop/web-2", "Service shop/web [fd00:1::1]:8081 pod shop/web-1"
	for _, test := range []struct {
		host string
		port uint16
		want []string
	}{
		{"web", 80, []string{web1, web2, web6}},
		{"web.shop", 80, []string{web1, web2, web6}},
		{"WEB.shop.svc.Cluster.Local.", 80, []string{web1, web2, web6}},
		{"10.0.0.10", 80, []string{web1, web2, web6}},
		{"fd00:10::10", 80, []string{web1, web2, web6}},
		{"web", 81, []string{"Service shop/web 10.1.0.1:9000 pod shop/web-1", "Service shop/web 10.1.0.2:9000 pod shop/web-2"}},
		{"db", 5432, []string{"Service shop/db 10.1.0.5:5432 pod shop/db-0"}},
		{"db", 9999, []string{"Service shop/db 10.1.0.5:9999 pod shop/db-0"}},
		{"db-0.db.shop.svc", 5432, []string{"Service shop/db 10.1.0.5:5432 pod shop/db-0"}},
		{"10-1-0-1.shop.pod", 8080, []string{"Pod shop/web-1 10.1.0.1:8080 pod shop/web-1"}},
		{"10.1.0.1", 8080, []string{"Pod shop/web-1 10.1.0.1:8080 pod shop/web-1"}},
		{"[fd00:1::1]", 8080, []string{"Pod shop/web-1 [fd00:1::1]:8080 pod shop/web-1"}},
		{"node-1", 10250, []string{"Node /node-1 192.0.2.1:10250"}},
		{"192.0.2.1", 10250, []string{"Node /node-1 192.0.2.1:10250"}},
		{"ip-2.example.internal", 22, []string{"Node /ip-2.example.internal 192.0.2.2:22"}},
		{"second", 22, []string{"Node /ip-2.example.internal 192.0.2.2:22"}},
		{"two.nodes.example", 22, []string{"External / invalid AddrPort"}},
		{"vault.example", 22, []string{"External / invalid AddrPort"}},
		{"198.51.100.2", 22, []string{"External / 198.51.100.2:22"}},
		{"leaving", 80, []string{"Service shop/leaving 10.1.0.8:80 pod shop/leaving-1"}},
		{"lure", 80, []string{"Service shop/lure 10.1.0.6:80"}},
		{"out", 5432, []string{"External / invalid AddrPort"}},
		{"in", 80, []string{web1, web2, web6}},
		{"short", 80, []string{"External / invalid AddrPort"}},
		{"www.example.com", 443, []string{"External / invalid AddrPort"}},
		{"example.com", 443, []string{"External / invalid AddrPort"}},
		{"198.51.100.1", 443, []string{"External / 198.51.100.1:443"}},
		{"10.1.0.9", 80, []string{"External / 10.1.0.9:80"}},
	} {
		all, err := r.candidates(t.Context(), test.host, test.port)
		if err != nil {
			t.Errorf("%s:%d: %v", test.host, test.port, err)
			continue
		}
		got := map[string]bool{}
		for _, d := range all {
			got[summary(d)] = true
			if d.Kind != gateway.KindExternal && !strings.HasPrefix(test.host, "[") && d.Host != test.host {
				t.Errorf("%s: host %q", test.host, d.Host)
			}
		}
		for _, want := range test.want {
			if !got[want] {
				t.Errorf("%s:%d: %v, want %s", test.host, test.port, got, want)
			}
		}
		if len(got) != len(test.want) {
			t.Errorf("%s:%d: %v, want %d destinations", test.host, test.port, got, len(test.want))
		}
	}
	if d, err := r.Resolve(t.Context(), "out", 5432); err != nil || d.Host != "db.example.com" {
		t.Errorf("rules have to see where an ExternalName leads: host %q, %v", d.Host, err)
	}
}

// refusals: each error has its reason and says what to do.
func refusals(t *testing.T, r *Resolver) {
	for _, test := range []struct {
		host   string
		port   uint16
		reason gateway.Reason
		text   string
	}{
		{"nothing", 80, gateway.ReasonNotFound, "write SERVICE.NAMESPACE"},
		{"nothing.shop.svc", 80, gateway.ReasonNotFound, "kubectl get services -n shop"},
		{"db-7.db.shop.svc", 80, gateway.ReasonNotFound, `no Pod with the host name "db-7"`},
		{"web-1.web.shop.svc", 80, gateway.ReasonNotFound, "not headless"},
		{"10-1-0-99.shop.pod", 80, gateway.ReasonNotFound, "kubectl get pods"},
		{"empty", 80, gateway.ReasonNoEndpoints, "kubectl get endpointslices -n shop"},
		{"web", 82, gateway.ReasonNoEndpoints, "80, 81"},
		{"web", 53, gateway.ReasonUnsupported, "only TCP"},
		{"loop-a", 80, gateway.ReasonNotFound, "loop-a.shop.svc.cluster.local"},
		{"169.254.169.254", 80, gateway.ReasonDenied, "link-local"},
		{"127.0.0.1", 80, gateway.ReasonDenied, "loopback"},
		{"::", 80, gateway.ReasonDenied, "unspecified"},
		{"::ffff:127.0.0.1", 80, gateway.ReasonDenied, "loopback"},
		{"web", 0, gateway.ReasonUnsupported, "port"},
	} {
		_, err := r.Resolve(t.Context(), test.host, test.port)
		if err == nil || gateway.ReasonOf(err) != test.reason || !strings.Contains(err.Error(), test.text) {
			t.Errorf("%s:%d: %v, want reason %s and %q", test.host, test.port, err, test.reason, test.text)
		}
	}
}

// spread: each ready endpoint is picked now and then. That one of three is missed 200 times
// has a chance below 1e-34.
func spread(t *testing.T, r *Resolver) {
	seen := map[netip.AddrPort]bool{}
	for range 200 {
		d, err := r.Resolve(t.Context(), "web", 80)
		if err != nil {
			t.Fatal(err)
		}
		seen[d.Addr] = true
	}
	if len(seen) != 3 {
		t.Errorf("of 3 ready endpoints these were used: %v", seen)
	}
}

// rights: with rights in one namespace, what is in it resolves. Whatever else is refused and
// names the right; it is not taken for an external address, which other rules apply to.
func rights(t *testing.T, c *clustertest.Cluster) {
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "resolve"}, Rules: []rbacv1.PolicyRule{
		{Verbs: []string{"get", "list"}, APIGroups: []string{""}, Resources: []string{"services", "pods"}},
		{Verbs: []string{"list"}, APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}},
	}}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "resolve"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: "jane", APIGroup: rbacv1.GroupName}},
		RoleRef:    rbacv1.RoleRef{Kind: "Role", Name: "resolve", APIGroup: rbacv1.GroupName},
	}
	if _, err := c.Client.RbacV1().Roles("shop").Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Client.RbacV1().RoleBindings("shop").Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	r := New(c.ClientAs("jane"), Options{Namespace: "shop", APIServer: "10.0.0.7:6443"})
	c.Eventually(t, func() error { // RBAC is read from a cache
		_, err := r.Resolve(t.Context(), "web", 80)
		return err
	})
	for host, want := range map[string]gateway.Kind{
		"web.shop": gateway.KindService, "10.0.0.10": gateway.KindService, "10.1.0.1": gateway.KindPod, "www.example.com": gateway.KindExternal,
		"example.com.": gateway.KindExternal,
	} {
		if d, err := r.Resolve(t.Context(), host, 80); err != nil || d.Kind != want {
			t.Errorf("%s: %s, %v, want a %s", host, d.Kind, err, want)
		}
	}
	// The API server is reached by its address, though its node may not be read.
	if d, err := r.Resolve(t.Context(), "10.0.0.7", 6443); err != nil || d.Kind != gateway.KindExternal || d.Addr.String() != "10.0.0.7:6443" {
		t.Errorf("the API server: %+v, %v, want an external destination", d, err)
	}
	named := New(c.ClientAs("jane"), Options{Namespace: "shop", APIServer: "api.example:443"})
	if d, err := named.Resolve(t.Context(), "api.example", 443); err != nil || d.Kind != gateway.KindExternal || d.Host != "api.example" {
		t.Errorf("the API server by its name: %+v, %v, want an external destination", d, err)
	}
	// In a Pod it is the Service's address: neither a node's right nor its address is needed.
	pods := New(c.Client, Options{APIServer: "10.0.0.1:443"})
	for _, host := range []string{"10.0.0.1", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local."} {
		if d, err := pods.Resolve(t.Context(), host, 443); err != nil || d.Kind != gateway.KindExternal || d.Addr.String() != "10.0.0.1:443" || d.Host != "10.0.0.1" {
			t.Errorf("the API server as %s: %+v, %v, want the external destination 10.0.0.1:443", host, d, err)
		}
		if d, err := pods.Resolve(t.Context(), host, 444); err == nil {
			t.Errorf("another port of %s: %+v", host, d)
		}
	}
	for host, address := range map[string]string{"127.0.0.1": "127.0.0.1:6443", "localhost": "invalid AddrPort"} {
		local := New(c.Client, Options{APIServer: host + ":6443"})
		if d, err := local.Resolve(t.Context(), host, 6443); err != nil || d.Kind != gateway.KindExternal || d.Addr.String() != address {
			t.Errorf("the API server on loopback: %+v, %v, want an external destination at %s", d, err, address)
		}
		if _, err := local.Resolve(t.Context(), host, 6444); gateway.ReasonOf(err) != gateway.ReasonDenied {
			t.Errorf("another port of %s: %v", host, err)
		}
	}
	for host, text := range map[string]string{
		"10.0.0.7": `cannot list resource`, "kubernetes.default": `services "kubernetes" is forbidden`, "example.com": "with a dot at its end",
		"198.51.100.1": `cannot list resource`, "10.0.0.1": `cannot list resource`,
	} {
		_, err := r.Resolve(t.Context(), host, 443)
		if err == nil || gateway.ReasonOf(err) != gateway.ReasonDenied || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v, want reason %s and %q", host, err, gateway.ReasonDenied, text)
		}
	}
	if _, err := r.Resolve(t.Context(), "node-1", 22); gateway.ReasonOf(err) != gateway.ReasonNotFound || !strings.Contains(err.Error(), "nodes") {
		t.Errorf("node-1 without the right to list nodes: %v", err)
	}
}

// TestHiddenOwners: as long as one kind of object cannot be read, an address that is none of the others is not taken for one
// outside of the cluster. The refusal names the missing right.
func TestHiddenOwners(t *testing.T) {
	c := clustertest.Fake(t)
	populate(c)
	for _, resource := range []string{"services", "pods", "nodes"} {
		r := New(c.Without(resource), Options{Namespace: "shop"})
		d, err := r.Resolve(t.Context(), "198.51.100.1", 443)
		if want := fmt.Sprintf("cannot list resource %q", resource); gateway.ReasonOf(err) != gateway.ReasonDenied || !strings.Contains(err.Error(), want) {
			t.Errorf("without the right to %s: %+v, %v, want reason %s and %q", resource, d, err, gateway.ReasonDenied, want)
		}
	}
}

// changes: after a failed dial other endpoints are those of now, not those remembered.
func changes(t *testing.T, c *clustertest.Cluster) {
	r := New(c.Client, Options{Namespace: "shop", TTL: time.Hour})
	c.Pod("shop", "leaving-2", "node-1", []string{"10.1.0.88"})
	first, err := r.Resolve(t.Context(), "leaving", 80)
	if err != nil {
		t.Fatal(err)
	}
	c.Slice("shop", "leaving", "leaving-b", discoveryv1.AddressTypeIPv4, []discoveryv1.EndpointPort{clustertest.Port("", 80)},
		clustertest.Endpoint("shop", "leaving-2", "10.1.0.88", true))
	c.Eventually(t, func() error { // the API server answers from its watch cache
		all, err := r.Alternatives(t.Context(), first)
		if err != nil {
			return err
		}
		if len(all) != 1 || all[0].Pod.Name != "leaving-2" {
			return fmt.Errorf("alternatives %v", all)
		}
		return nil
	})
}

// nodesWithOneAddress: an address or a short host name that two nodes have leads to neither,
// because one of their kubelets has written what is not its own.
func nodesWithOneAddress(t *testing.T, c *clustertest.Cluster) {
	c.Node("rogue", "192.0.2.2", func(n *corev1.Node) {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeHostName, Address: "second"})
	})
	r := New(c.Client, Options{Namespace: "shop"})
	for _, host := range []string{"192.0.2.2", "second"} {
		all, err := r.candidates(t.Context(), host, 22)
		if err == nil || !strings.Contains(err.Error(), "rogue") || !strings.Contains(err.Error(), "ip-2.example.internal") {
			t.Errorf("%s: %v, %v, want an error that names both nodes", host, all, err)
		}
	}
}
