// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"context"
	"fmt"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
	"github.com/fairlead-dev/fairlead/pkg/gateway/internal/clustertest"
)

// podsServices: a Pod is one of the Services of its namespace whose EndpointSlices name it, by each of its addresses, whether
// or not it is ready, with the Services' own ports.
func podsServices(t *testing.T, c *clustertest.Cluster) {
	r := New(c.Client, Options{Namespace: "shop"})
	for _, test := range []struct {
		addr string
		pod  string
		want string
	}{
		{"10.1.0.1:8080", "web-1", "shop/web:80"}, {"[fd00:1::1]:8081", "web-1", "shop/web:80"}, {"10.1.0.1:9000", "web-1", "shop/web:81"},
		{"10.1.0.1:22", "web-1", "shop/web:22"}, {"10.1.0.5:5432", "db-0", "shop/db:5432"}, {"10.1.0.5:22", "db-0", "shop/db:22"},
		{"10.1.0.3:8080", "web-3", "shop/web:80"}, {"10.1.0.250:80", "stranger", ""},
	} {
		pod := gateway.Destination{Kind: gateway.KindPod, Namespace: "shop", Name: test.pod, Addr: netip.MustParseAddrPort(test.addr), Pod: types.NamespacedName{Namespace: "shop", Name: test.pod}}
		all, err := r.ServicesOf(t.Context(), pod)
		got := map[string]bool{}
		for _, d := range all {
			if d.Kind != gateway.KindService || d.Addr != pod.Addr {
				t.Errorf("%s: %+v", test.addr, d)
			}
			got[fmt.Sprintf("%s/%s:%d", d.Namespace, d.Name, d.Port)] = true
		}
		if err != nil || test.want != "" && !got[test.want] || test.want == "" && len(got) > 0 {
			t.Errorf("%s: %v, %v, want %s", test.addr, got, err, test.want)
		}
	}
	if _, err := New(c.ClientAs("stranger"), Options{}).ServicesOf(t.Context(), gateway.Destination{Kind: gateway.KindPod, Namespace: "shop"}); gateway.ReasonOf(err) != gateway.ReasonDenied {
		t.Errorf("without the right to list EndpointSlices: %v", err)
	}
}

// headlessPorts: a headless Service leads to all ports of its Pods. One that the Service does not name is
// one of the Pod, by whatever name it is asked for, and one of the node where the Pod has its network, so
// that the right to the Service is none to it.
func headlessPorts(t *testing.T, c *clustertest.Cluster) {
	c.Pod("shop", "queue-0", "node-1", []string{"10.1.0.61"})
	c.Pod("shop", "queue-1", "node-1", []string{"192.0.2.1"}, func(p *corev1.Pod) {
		p.Spec.HostNetwork = true
		p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 7000}}
	})
	headless := func(name string, endpoint discoveryv1.Endpoint) {
		c.Service("shop", name, corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Ports: []corev1.ServicePort{
			{Name: "amqp", Port: 5672, TargetPort: intstr.FromInt32(6000)}, {Name: "metrics", Port: 7000},
			{Name: "discovery", Port: 4369, Protocol: corev1.ProtocolUDP},
		}})
		endpoint.Hostname = new("pod")
		c.Slice("shop", name, name+"-a", discoveryv1.AddressTypeIPv4, []discoveryv1.EndpointPort{clustertest.Port("amqp", 6000)}, endpoint)
	}
	headless("queue", clustertest.Endpoint("shop", "queue-0", "10.1.0.61", true))
	headless("host-queue", clustertest.Endpoint("shop", "queue-1", "192.0.2.1", true))
	c.Service("shop", "portless", corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone})
	c.Slice("shop", "portless", "portless-a", discoveryv1.AddressTypeIPv4, nil, clustertest.Endpoint("shop", "queue-0", "10.1.0.61", true))
	const service, pod = "Service shop/queue 10.1.0.61:%d pod shop/queue-0", "Pod shop/queue-0 10.1.0.61:%d pod shop/queue-0"
	r := New(c.Client, Options{Namespace: "shop"})
	for _, test := range []struct {
		host string
		port uint16
		want string
	}{
		{"queue", 5672, service}, {"queue", 6000, service}, {"pod.queue.shop.svc", 5672, service},
		{"queue", 22, pod}, {"queue.shop.svc.cluster.local", 22, pod}, {"pod.queue.shop.svc", 22, pod}, {"10-1-0-61.queue.shop.svc", 22, pod},
		{"queue", 4369, pod}, {"portless", 5672, pod},
		{"host-queue", 7000, "Service shop/host-queue 192.0.2.1:%d pod shop/queue-1"}, {"host-queue", 10250, "Node /node-1 192.0.2.1:%d"},
	} {
		want := fmt.Sprintf(test.want, test.port)
		c.Eventually(t, func() error { // the API server answers from its watch cache
			d, err := r.Resolve(t.Context(), test.host, test.port)
			if err == nil && (summary(d) != want || d.Host != test.host) {
				err = fmt.Errorf("%s:%d is %s for rules of host %s, want %s", test.host, test.port, summary(d), d.Host, want)
			}
			return err
		})
	}
	named := New(c.Client, Options{Namespace: "shop", PodsByName: true})
	if d, err := named.Resolve(t.Context(), "queue", 22); err != nil || summary(d) != fmt.Sprintf(pod, 22) {
		t.Errorf("by the Pod's name: %s, %v", summary(d), err)
	}
}

// outerAddresses: an external IP and the address of a load balancer are those of their Service, by the
// Service's ports. They take no address of a Pod or a node, because users choose them.
func outerAddresses(t *testing.T, c *clustertest.Cluster) {
	c.Pod("shop", "shown-1", "node-1", []string{"10.1.0.62"})
	outer := func(name string, port int32, ips ...string) *corev1.Service {
		s := c.Service("shop", name, corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, ExternalIPs: ips, Ports: []corev1.ServicePort{{Port: port, TargetPort: intstr.FromInt32(8080)}},
		})
		c.Slice("shop", name, name+"-a", discoveryv1.AddressTypeIPv4, []discoveryv1.EndpointPort{clustertest.Port("", 8080)}, clustertest.Endpoint("shop", "shown-1", "10.1.0.62", true))
		return s
	}
	outer("external", 80, "203.0.113.1", "10.1.0.1", "192.0.2.1", "203.0.113.3")
	outer("external-tls", 443, "203.0.113.1")
	balanced := outer("balanced", 80)
	balanced.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.2"}, {Hostname: "lb.example"}}
	if _, err := c.Client.CoreV1().Services("shop").UpdateStatus(t.Context(), balanced, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	r := New(c.Client, Options{Namespace: "shop"})
	for _, test := range []struct {
		host string
		port uint16
		want string
	}{
		{"203.0.113.1", 80, "Service shop/external 10.1.0.62:8080 pod shop/shown-1"}, {"203.0.113.1", 443, "Service shop/external-tls 10.1.0.62:8080 pod shop/shown-1"},
		{"203.0.113.2", 80, "Service shop/balanced 10.1.0.62:8080 pod shop/shown-1"},
		{"10.1.0.1", 80, "Pod shop/web-1 10.1.0.1:80 pod shop/web-1"}, {"192.0.2.1", 80, "Node /node-1 192.0.2.1:80"}, {"203.0.113.9", 80, "External / 203.0.113.9:80"},
	} {
		c.Eventually(t, func() error {
			d, err := r.Resolve(t.Context(), test.host, test.port)
			if err == nil && summary(d) != test.want {
				err = fmt.Errorf("%s:%d is %s, want %s", test.host, test.port, summary(d), test.want)
			}
			return err
		})
	}
	if d, err := r.Resolve(t.Context(), "203.0.113.2", 22); gateway.ReasonOf(err) != gateway.ReasonNoEndpoints {
		t.Errorf("a port that no Service of the address has: %+v, %v", d, err)
	}
	// A load balancer that is known by its name is where DNS says, and belongs to its Service, at each of its addresses.
	named := New(c.Client, Options{LookUp: func(context.Context, string) ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr("198.51.100.7"), netip.MustParseAddr("198.51.100.8")}, nil
	}})
	for host, service := range map[string]string{"lb.example.": "shop/balanced", "LB.Example.": "shop/balanced", "lb2.example.": "/"} {
		d, err := named.Resolve(t.Context(), host, 80)
		if err != nil || summary(d) != "External / 198.51.100.7:80" || d.Service.String() != service {
			t.Errorf("%s: %+v, %v, want Service %s", host, d, err, service)
		}
		others, err := named.Alternatives(t.Context(), d)
		if err != nil || len(others) != 1 || summary(others[0]) != "External / 198.51.100.8:80" || others[0].Service != d.Service {
			t.Errorf("other addresses of %s: %+v, %v", host, others, err)
		}
	}
}
