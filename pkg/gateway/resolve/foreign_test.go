// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
	"github.com/fairlead-dev/fairlead/pkg/gateway/internal/clustertest"
)

// foreignEndpoints: an endpoint that is no Pod of the Service's namespace is what its address
// is by itself, whatever reference its EndpointSlice has, so that the right to a Service, which
// its users write, is none to other namespaces' Pods, to nodes and to other hosts.
func foreignEndpoints(t *testing.T, c *clustertest.Cluster) {
	c.Namespace("prod")
	c.Pod("prod", "vault", "node-1", []string{"10.1.0.77"})
	c.Pod("shop", "node-agent", "node-1", []string{"192.0.2.1"}, func(p *corev1.Pod) {
		p.Spec.HostNetwork = true
		p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 9100}, {ContainerPort: 9101, Protocol: corev1.ProtocolUDP}}
	})
	family := func(addr string) discoveryv1.AddressType {
		if strings.Contains(addr, ":") {
			return discoveryv1.AddressTypeIPv6
		}
		return discoveryv1.AddressTypeIPv4
	}
	lure := func(name string, port int32, endpoints ...discoveryv1.Endpoint) {
		c.Service("shop", name, corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}})
		for i, e := range endpoints {
			c.Slice("shop", name, fmt.Sprint(name, "-", i), family(e.Addresses[0]), []discoveryv1.EndpointPort{clustertest.Port("", port)}, e)
		}
	}
	bare := func(addr string) discoveryv1.Endpoint { return discoveryv1.Endpoint{Addresses: []string{addr}} }
	lure("to-pod", 8200, bare("10.1.0.77"))
	lure("to-pod-disguised", 8200, clustertest.Endpoint("shop", "web-1", "10.1.0.77", true))
	lure("to-pod-by-reference", 8200, clustertest.Endpoint("prod", "vault", "10.1.0.77", true))
	lure("to-node", 22, bare("192.0.2.2"))
	lure("to-node-disguised", 22, clustertest.Endpoint("shop", "web-1", "192.0.2.2", true))
	lure("to-outside", 443, clustertest.Endpoint("shop", "web-1", "198.51.100.1", true))
	lure("to-service", 80, bare("10.0.0.10"))
	lure("to-own", 8080, bare("10.1.0.2"))
	lure("to-own-second", 8080, bare("fd00:1::1"))
	lure("to-host-network", 9100, clustertest.Endpoint("shop", "node-agent", "192.0.2.1", true))
	lure("to-kubelet", 10250, clustertest.Endpoint("shop", "node-agent", "192.0.2.1", true))
	lure("to-udp-port", 9101, clustertest.Endpoint("shop", "node-agent", "192.0.2.1", true))
	lure("foreign", 6443, bare("192.0.2.2"), bare("10.1.0.77"))
	lure("mixed", 8080, bare("198.51.100.1"), bare("10.1.0.77"), bare("192.0.2.2"), clustertest.Endpoint("shop", "web-1", "10.1.0.1", true))
	r := New(c.Client, Options{Namespace: "shop"})
	for host, want := range map[string]string{
		"to-pod":              "Pod prod/vault 10.1.0.77:8200 pod prod/vault",
		"to-pod-disguised":    "Pod prod/vault 10.1.0.77:8200 pod prod/vault",
		"to-pod-by-reference": "Pod prod/vault 10.1.0.77:8200 pod prod/vault",
		"to-node":             "Node /ip-2.example.internal 192.0.2.2:22",
		"to-node-disguised":   "Node /ip-2.example.internal 192.0.2.2:22",
		"to-outside":          "External / 198.51.100.1:443",
		"to-own":              "Service shop/to-own 10.1.0.2:8080 pod shop/web-2",
		"to-own-second":       "Service shop/to-own-second [fd00:1::1]:8080 pod shop/web-1",
		"to-host-network":     "Service shop/to-host-network 192.0.2.1:9100 pod shop/node-agent",
		"to-kubelet":          "Node /node-1 192.0.2.1:10250",
		"to-udp-port":         "Node /node-1 192.0.2.1:9101",
		"mixed":               "Service shop/mixed 10.1.0.1:8080 pod shop/web-1",
	} {
		c.Eventually(t, func() error { // the API server answers from its watch cache
			d, err := r.Resolve(t.Context(), host, 80)
			if err == nil && summary(d) != want {
				err = fmt.Errorf("%s is %s, want %s", host, summary(d), want)
			}
			if err == nil && d.Kind == gateway.KindExternal && d.Host != "198.51.100.1" || err == nil && d.Kind != gateway.KindExternal && d.Host != host {
				err = fmt.Errorf("%s: rules see the host %s", host, d.Host)
			}
			return err
		})
	}
	if d, err := r.Resolve(t.Context(), "to-service", 80); gateway.ReasonOf(err) != gateway.ReasonDenied || !strings.Contains(err.Error(), "shop/web") {
		t.Errorf("an endpoint that is a Service's address: %+v, %v", d, err)
	}
	first, err := r.Resolve(t.Context(), "mixed", 80)
	if err != nil {
		t.Fatal(err)
	}
	if all, err := r.Alternatives(t.Context(), first); err != nil || len(all) != 0 {
		t.Errorf("alternatives that are no Pods of the namespace: %v, %v", all, err)
	}
	// Endpoints that are no Pods of the namespace stand in for each other, each under the rules for what it is.
	one, err := r.Resolve(t.Context(), "foreign", 80)
	if err != nil || one.Kind == gateway.KindService || one.Port != 80 {
		t.Fatalf("a Service of foreign endpoints: %+v, %v", one, err)
	}
	all, err := r.Alternatives(t.Context(), one)
	if err != nil || len(all) != 1 || all[0].Kind == gateway.KindService || all[0].Kind == one.Kind || all[0].Host != "foreign" || all[0].Port != 80 {
		t.Errorf("alternatives of %s: %+v, %v, want the other endpoint", one.Addr, all, err)
	}
	// Port-forwarding connects to the Pod of the reference, whatever the address is.
	named := New(c.Client, Options{Namespace: "shop", PodsByName: true})
	if d, err := named.Resolve(t.Context(), "to-pod-disguised", 80); err != nil || d.Kind != gateway.KindService || d.Pod.String() != "shop/web-1" {
		t.Errorf("by the Pod's name: %+v, %v", d, err)
	}
	apiServerAtNode(t, c)
}

// apiServerAtNode: the API server is one under the address of its node, too. Service kubernetes leads there.
func apiServerAtNode(t *testing.T, c *clustertest.Cluster) {
	server := New(c.Client, Options{Namespace: "shop", APIServer: "192.0.2.2:22"})
	for _, host := range []string{"to-node", "192.0.2.2"} {
		port := map[string]uint16{"to-node": 80, "192.0.2.2": 22}[host]
		if d, err := server.Resolve(t.Context(), host, port); err != nil || summary(d) != "External / 192.0.2.2:22" || d.Host != "192.0.2.2" {
			t.Errorf("the API server as %s: %+v, %v", host, d, err)
		}
	}
	if d, err := server.Resolve(t.Context(), "192.0.2.2", 10250); err != nil || d.Kind != gateway.KindNode {
		t.Errorf("another port of the API server's node: %+v, %v", d, err)
	}
}

// apiServerService: Service kubernetes is the API server of the kubeconfig, by its names and its cluster IPs: all users
// may reach that, and none needs a right to the nodes or addresses that its endpoints are. What others write into
// its EndpointSlices leads nowhere. Its other ports, and Services of that name elsewhere, are what they are.
func apiServerService(t *testing.T, c *clustertest.Cluster) {
	c.Slice("default", "kubernetes", "planted", discoveryv1.AddressTypeIPv4, []discoveryv1.EndpointPort{clustertest.Port("https", 443)},
		discoveryv1.Endpoint{Addresses: []string{"198.51.100.66"}})
	c.Service("shop", "kubernetes", corev1.ServiceSpec{ClusterIP: "10.0.0.14", Ports: []corev1.ServicePort{{Port: 443}}})
	names := []string{"kubernetes.default", "kubernetes.default.svc", "Kubernetes.default.svc.cluster.local.", "10.0.0.1", "::ffff:10.0.0.1"}
	for server, addr := range map[string]string{
		"192.0.2.1:6443": "192.0.2.1:6443", "198.51.100.9:443": "198.51.100.9:443", "[fd00:5::1]:6443": "[fd00:5::1]:6443", "api.example:6443": "invalid AddrPort",
	} {
		r := New(c.Client, Options{Namespace: "shop", APIServer: server})
		for _, host := range names {
			d, err := r.Resolve(t.Context(), host, 443)
			if err != nil || summary(d) != "External / "+addr || d.String() != server || d.Service != gateway.APIServerService {
				t.Errorf("API server %s as %s: %+v, %v", server, host, d, err)
			}
			if d, err := r.Resolve(t.Context(), host, 6443); err == nil {
				t.Errorf("API server %s, another port of %s: %+v", server, host, d)
			}
		}
		for _, host := range []string{"kubernetes", "kubernetes.shop.svc", "10.0.0.14"} {
			if d, err := r.Resolve(t.Context(), host, 443); err == nil || !strings.Contains(err.Error(), "shop/kubernetes") {
				t.Errorf("another Service as %s: %+v, %v", host, d, err)
			}
		}
	}
	// A host outside of the cluster whose owner gives it the cluster IP is the API server, too, by that one's own name.
	r := New(c.Client, Options{APIServer: "api.example:6443", LookUp: func(context.Context, string) ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr("10.0.0.1")}, nil
	}})
	if d, err := r.Resolve(t.Context(), "www.example.com", 443); err != nil || d.String() != "api.example:6443" || d.Kind != gateway.KindExternal {
		t.Errorf("a name that leads to Service kubernetes: %+v, %v", d, err)
	}
}
