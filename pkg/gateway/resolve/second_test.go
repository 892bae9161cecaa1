// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/fairlead-dev/fairlead/pkg/gateway/internal/clustertest"
)

// secondFamily: a Pod is found by its second address in clusters whose network takes no ranges of nodes, and by one that
// the ranges of its node do not have. Otherwise it would pass for a host outside of the cluster.
func secondFamily(t *testing.T, c *clustertest.Cluster) {
	c.Node("ipv6-first", "2001:db8::3")
	c.Pod("shop", "ipam-1", "ip-2.example.internal", []string{"10.7.0.1", "fd07::1"})
	c.Pod("shop", "ipam-2", "node-1", []string{"10.7.0.2", "fd00:1::7:2"})
	c.Pod("shop", "ipam-3", "node-1", []string{"10.7.0.3", "fd07::3"})
	c.Pod("shop", "ipam-4", "ipv6-first", []string{"fd07::4", "10.7.0.4"})
	c.Pod("shop", "ipam-done", "node-1", []string{"10.7.0.5", "fd07::5"}, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
	for addr, want := range map[string]string{
		"fd07::1": "Pod shop/ipam-1", "fd00:1::7:2": "Pod shop/ipam-2", "fd07::3": "Pod shop/ipam-3", "10.7.0.4": "Pod shop/ipam-4", "fd07::4": "Pod shop/ipam-4",
		"fd07::5": "External /", "2001:db8::99": "External /", "2001:db8::3": "Node /ipv6-first",
	} {
		c.Eventually(t, func() error { // the API server answers from its watch cache
			r := New(c.Client, Options{Namespace: "shop"})
			d, err := r.Resolve(t.Context(), addr, 5432)
			if err == nil && (fmt.Sprintf("%s %s/%s", d.Kind, d.Namespace, d.Name) != want || d.Addr.Addr().String() != addr) {
				err = fmt.Errorf("%s is %s, want %s", addr, summary(d), want)
			}
			return err
		})
	}
	// An endpoint of a Service by that address is one of the Service.
	c.Service("shop", "ipam", corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}})
	c.Slice("shop", "ipam", "ipam-a", discoveryv1.AddressTypeIPv6, []discoveryv1.EndpointPort{clustertest.Port("", 8080)}, discoveryv1.Endpoint{Addresses: []string{"fd07::1"}})
	c.Eventually(t, func() error {
		d, err := New(c.Client, Options{Namespace: "shop"}).Resolve(t.Context(), "ipam", 80)
		if want := "Service shop/ipam [fd07::1]:8080 pod shop/ipam-1"; err == nil && summary(d) != want {
			err = fmt.Errorf("the Service is %s, want %s", summary(d), want)
		}
		return err
	})
}
