// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/singleflight"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
)

// The types below are what the resolver keeps of objects.

type service struct {
	types.NamespacedName
	headless     bool
	externalName string
	addrs        []netip.Addr // cluster IPs
	outer        []netip.Addr // external IPs and those of load balancers
	outerNames   []string     // host names of load balancers, in lower case and without a dot at the end
	ports        []servicePort
}

type servicePort struct {
	name   string
	number uint16
	target uint16 // 0 if it is a name
	tcp    bool
}

type endpoint struct {
	addr     netip.Addr
	hostname string
	pod      types.NamespacedName
	node     string
	ready    bool
	serving  bool              // ready, or terminating and still serving
	ports    map[string]uint16 // by the name of the Service's port
}

type pod struct {
	types.NamespacedName
	node        string
	hostNetwork bool
	declared    []uint16 // the TCP ports of its containers
	done        bool     // its containers have terminated, so its address may be another Pod's
	addrs       []netip.Addr
}

// node has of what its kubelet writes into its status only what cannot name another host: its
// internal addresses, and host names that are used if they have no dot. External addresses
// and full names would lead around the rules for external destinations.
type node struct {
	name      string
	addrs     []netip.Addr
	hostnames []string
	secondary []netip.Prefix // Pod ranges but the first
}

func trimService(s *corev1.Service) service {
	out := service{NamespacedName: types.NamespacedName{Namespace: s.Namespace, Name: s.Name}, headless: s.Spec.ClusterIP == corev1.ClusterIPNone}
	if s.Spec.Type == corev1.ServiceTypeExternalName {
		out.externalName = s.Spec.ExternalName
	}
	out.addrs = parseAddrs(append([]string{s.Spec.ClusterIP}, s.Spec.ClusterIPs...)...)
	outer := slices.Clone(s.Spec.ExternalIPs)
	for _, in := range s.Status.LoadBalancer.Ingress {
		outer = append(outer, in.IP)
		if name := strings.ToLower(strings.TrimSuffix(in.Hostname, ".")); name != "" {
			out.outerNames = append(out.outerNames, name)
		}
	}
	out.outer = parseAddrs(outer...)
	for _, p := range s.Spec.Ports {
		out.ports = append(out.ports, servicePort{
			name: p.Name, number: uint16(p.Port), target: uint16(p.TargetPort.IntVal), tcp: p.Protocol == corev1.ProtocolTCP || p.Protocol == "", //nolint:gosec // validated by the API server
		})
	}
	return out
}

// trimSlices returns the endpoints of a Service. A Pod is taken from the reference only if
// it is in the Service's namespace: EndpointSlices are written by users as well, and a
// reference to a Pod elsewhere would lead around rules for namespaces.
func trimSlices(namespace string, list []discoveryv1.EndpointSlice) []endpoint {
	var out []endpoint
	for i := range list {
		s := &list[i]
		if s.AddressType == discoveryv1.AddressTypeFQDN {
			continue
		}
		ports := map[string]uint16{}
		for _, p := range s.Ports {
			if p.Port != nil && (p.Protocol == nil || *p.Protocol == corev1.ProtocolTCP) {
				ports[deref(p.Name)] = uint16(*p.Port) //nolint:gosec // validated by the API server
			}
		}
		for _, e := range s.Endpoints {
			addrs := parseAddrs(e.Addresses...)
			if len(addrs) == 0 {
				continue
			}
			ready := e.Conditions.Ready == nil || *e.Conditions.Ready
			one := endpoint{
				addr: addrs[0], hostname: deref(e.Hostname), node: deref(e.NodeName), ports: ports,
				ready: ready, serving: ready || deref(e.Conditions.Serving),
			}
			if r := e.TargetRef; r != nil && r.Kind == "Pod" && (r.Namespace == namespace || r.Namespace == "") {
				one.pod = types.NamespacedName{Namespace: namespace, Name: r.Name}
			}
			out = append(out, one)
		}
	}
	return out
}

func trimPod(p *corev1.Pod) pod {
	out := pod{
		NamespacedName: types.NamespacedName{Namespace: p.Namespace, Name: p.Name}, node: p.Spec.NodeName,
		hostNetwork: p.Spec.HostNetwork, done: p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed,
	}
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		for _, port := range c.Ports {
			if port.Protocol == corev1.ProtocolTCP || port.Protocol == "" {
				out.declared = append(out.declared, uint16(port.ContainerPort)) //nolint:gosec // validated by the API server
			}
		}
	}
	for _, ip := range p.Status.PodIPs {
		out.addrs = append(out.addrs, parseAddrs(ip.IP)...)
	}
	return out
}

func trimNode(n *corev1.Node) node {
	out := node{name: n.Name}
	for _, a := range n.Status.Addresses {
		switch a.Type {
		case corev1.NodeInternalIP:
			out.addrs = append(out.addrs, parseAddrs(a.Address)...)
		case corev1.NodeHostName:
			out.hostnames = append(out.hostnames, a.Address)
		}
	}
	for i, text := range n.Spec.PodCIDRs {
		if p, err := netip.ParsePrefix(text); err == nil && i > 0 {
			out.secondary = append(out.secondary, p)
		}
	}
	return out
}

func parseAddrs(texts ...string) []netip.Addr {
	var out []netip.Addr
	for _, text := range texts {
		if a, err := netip.ParseAddr(text); err == nil && !slices.Contains(out, a.Unmap()) {
			out = append(out, a.Unmap())
		}
	}
	return out
}

func deref[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

// memo keeps answers of the API server for a time: values, and that there is no such object. Other
// errors are not kept. Connections that ask for the same while an answer is on its way share it.
type memo[V any] struct {
	entries *cache.LRUExpireCache
	ttl     time.Duration
	asking  *singleflight.Group
}

// memoSize bounds each memo: a client that asks for many names costs requests, not memory.
const memoSize = 4096

// askTimeout bounds a request that several connections share: it does not end with one of them.
const askTimeout = 30 * time.Second

func newMemo[V any](ttl time.Duration) memo[V] {
	return memo[V]{entries: cache.NewLRUExpireCache(memoSize), ttl: ttl, asking: new(singleflight.Group)}
}

type answer[V any] struct {
	value V
	err   error // not found
}

// get returns the value for a key, and asks for it if it is unknown, too old, or has to be
// fresh.
func (m memo[V]) get(ctx context.Context, key string, fetch func(context.Context) (V, error)) (V, error) {
	if isFresh(ctx) {
		return m.ask(ctx, key, fetch)
	}
	if kept, ok := m.entries.Get(key); ok {
		a := kept.(answer[V])
		return a.value, a.err
	}
	shared := m.asking.DoChan(key, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTimeout)
		defer cancel()
		if kept, ok := m.entries.Get(key); ok { // since this one has looked
			a := kept.(answer[V])
			return a.value, a.err
		}
		return m.ask(ctx, key, fetch)
	})
	select {
	case r := <-shared:
		return r.Val.(V), r.Err
	case <-ctx.Done():
		var none V
		return none, ctx.Err()
	}
}

func (m memo[V]) ask(ctx context.Context, key string, fetch func(context.Context) (V, error)) (V, error) {
	v, err := fetch(ctx)
	if err == nil || apierrors.IsNotFound(err) {
		m.entries.Add(key, answer[V]{v, err}, m.ttl)
	}
	return v, err
}

type freshKey struct{}

// withFresh returns a context for which memos are not read.
func withFresh(ctx context.Context) context.Context { return context.WithValue(ctx, freshKey{}, true) }

func isFresh(ctx context.Context) bool { return ctx.Value(freshKey{}) != nil }

// anyVersion lets the API server answer a list from its watch cache.
var anyVersion = metav1.ListOptions{ResourceVersion: "0"}
