// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
)

// byAddr finds what a literal address belongs to: the API server, or an object of it.
func (r *Resolver) byAddr(ctx context.Context, addr netip.Addr, port uint16) ([]gateway.Destination, string, error) {
	if d, ok := r.apiServer(addr.String(), port); ok {
		return []gateway.Destination{d}, "", nil
	}
	return r.objectWithAddr(ctx, addr, port)
}

// objectWithAddr finds the object that a literal address belongs to. It does not take an address for
// an external one as long as it cannot see all objects: that would lead around rules.
func (r *Resolver) objectWithAddr(ctx context.Context, addr netip.Addr, port uint16) ([]gateway.Destination, string, error) {
	q := query{host: addr.String(), addr: addr}
	if err := gateway.CheckOwner(ctx, q.host, port); err != nil {
		return nil, "", err
	}
	var missing error
	for _, find := range []func(context.Context, string, netip.Addr) ([]service, error){r.servicesWithAddr, r.servicesWithSecondAddr} {
		found, err := search(ctx, r.o.Namespaces, addr, find)
		if len(found) > 0 {
			return r.ownerOf(ctx, found[0], q, port)
		}
		if err != nil {
			missing = err
			break // the other way needs the same right
		}
	}
	all, hidden, err := r.podOrNode(ctx, q, port)
	if len(all) > 0 || err != nil {
		return all, "", err
	}
	if missing = cmp.Or(missing, hidden); missing != nil {
		return nil, "", apiError(missing, fmt.Sprintf("find out what %s belongs to", addr))
	}
	// After Pods and nodes: users choose the external IPs of their Services.
	found, err := search(ctx, r.o.Namespaces, addr, r.servicesWithOuterAddr)
	switch {
	case len(found) > 0:
		return r.ownerOf(ctx, withPort(found, port), q, port)
	case err != nil:
		return nil, "", apiError(err, fmt.Sprintf("find out what %s belongs to", addr))
	}
	if err := checkExternal(addr); err != nil {
		return nil, "", err
	}
	return []gateway.Destination{{Host: q.host, Port: port, Kind: gateway.KindExternal, Addr: netip.AddrPortFrom(addr, port)}}, "", nil
}

// ownerOf returns the endpoints of the Service that has an address, if the client may know of it: an error about its
// ports would name it.
func (r *Resolver) ownerOf(ctx context.Context, svc service, q query, port uint16) ([]gateway.Destination, string, error) {
	if d, ok := r.asAPIServer(svc, port); ok {
		return []gateway.Destination{d}, "", nil
	}
	d := gateway.Destination{Host: q.host, Port: port, Kind: gateway.KindService, Namespace: svc.Namespace, Name: svc.Name}
	if err := gateway.CheckName(ctx, d); err != nil {
		return nil, "", err
	}
	all, err := r.serviceEndpoints(ctx, svc, q, port)
	return all, "", err
}

// podOrNode finds the Pod or the node that has an address. If it finds none, hidden tells why there may be
// one all the same.
func (r *Resolver) podOrNode(ctx context.Context, q query, port uint16) (all []gateway.Destination, hidden, err error) {
	nodes, nodesErr := r.allNodes(ctx)
	pods, podsErr := search(ctx, r.o.Namespaces, q.addr, r.podsWithAddr)
	if len(pods) == 0 && podsErr == nil && nodesErr == nil {
		pods, podsErr = r.podsOfSecondFamily(ctx, nodes, q.addr)
	}
	for _, p := range pods {
		if !p.hostNetwork {
			return []gateway.Destination{podDestination(p, q.addr, q.host, port)}, nil, nil
		}
	}
	n, err := nodeWithAddr(nodes, q.addr)
	switch {
	case err != nil:
		return nil, nil, err
	case n == nil && len(pods) > 0: // the node's name is known, though nodes cannot be read
		n = &node{name: pods[0].node}
	case n == nil:
		return nil, cmp.Or(podsErr, nodesErr), nil
	}
	all, err = nodeDestination(n, q.addr, q.host, port)
	return all, nil, err
}

// nodeWithAddr returns the node that has an address; nil if none has it. Kubelets write the
// addresses of their nodes themselves: of two nodes with one address, one has taken it.
func nodeWithAddr(nodes []node, addr netip.Addr) (*node, error) {
	var found *node
	for i := range nodes {
		if !slices.Contains(nodes[i].addrs, addr) {
			continue
		}
		if found != nil {
			return nil, gateway.Errorf(gateway.ReasonUnsupported, "compare status.addresses of the two nodes, and use a node's name",
				"nodes %s and %s both have the address %s", found.name, nodes[i].name, addr)
		}
		found = &nodes[i]
	}
	return found, nil
}

// checkExternal refuses addresses that mean another host at each place from where they are
// dialed, among them the metadata services of clouds.
func checkExternal(a netip.Addr) error {
	if a.IsLoopback() || a.IsUnspecified() || a.IsMulticast() || a.IsLinkLocalUnicast() || a == netip.AddrFrom4([4]byte{255, 255, 255, 255}) {
		return gateway.Errorf(gateway.ReasonDenied, "use the address of a Service, a Pod or a node",
			"%s is a loopback, link-local, multicast or unspecified address", a)
	}
	return nil
}

// search looks in all namespaces or, if that is forbidden, in those that are known. The
// error is that of the search in all namespaces: without it, nothing found means that there
// is nothing.
func search[T any](ctx context.Context, namespaces []string, addr netip.Addr, find func(context.Context, string, netip.Addr) ([]T, error)) ([]T, error) {
	found, all := find(ctx, metav1.NamespaceAll, addr)
	if !apierrors.IsForbidden(all) {
		return found, all
	}
	for _, namespace := range namespaces {
		found, err := find(ctx, namespace, addr)
		if len(found) > 0 {
			return found, nil
		}
		if err != nil && !apierrors.IsForbidden(err) {
			return nil, err
		}
	}
	return nil, all
}

func (r *Resolver) podsWithAddr(ctx context.Context, namespace string, addr netip.Addr) ([]pod, error) {
	return r.listPods(ctx, namespace, "status.podIP="+addr.String(), addr)
}

// podsOfSecondFamily finds Pods by an address of the second family, which field selectors do not see. They are on the node
// whose second Pod range has it. Networks that assign addresses by themselves leave these ranges empty, or do not follow
// them: there only the list of all Pods tells.
func (r *Resolver) podsOfSecondFamily(ctx context.Context, nodes []node, addr netip.Addr) ([]pod, error) {
	for i := range nodes {
		if !slices.ContainsFunc(nodes[i].secondary, func(p netip.Prefix) bool { return p.Contains(addr) }) {
			continue
		}
		if found, err := r.listPods(ctx, metav1.NamespaceAll, "spec.nodeName="+nodes[i].name, addr); len(found) > 0 || err != nil {
			return found, err
		}
	}
	if !mayBeSecond(nodes, addr) {
		return nil, nil
	}
	all, err := r.twoFamilies.get(ctx, "", func(ctx context.Context) ([]pod, error) {
		all, err := r.askForPods(ctx, metav1.NamespaceAll, "")
		return slices.DeleteFunc(all, func(p pod) bool { return len(p.addrs) < 2 }), err
	})
	return withPodAddr(all, addr), err
}

// mayBeSecond reports whether an address may be a second one of a Pod. Kubelets list IPv4 first, unless their node has an IPv6
// address in the first place.
func mayBeSecond(nodes []node, addr netip.Addr) bool {
	return addr.Is6() || slices.ContainsFunc(nodes, func(n node) bool { return len(n.addrs) == 0 || n.addrs[0].Is6() })
}

// listPods returns the running Pods that a field selector picks and that have an address.
func (r *Resolver) listPods(ctx context.Context, namespace, selector string, addr netip.Addr) ([]pod, error) {
	all, err := r.pods.get(ctx, namespace+"/"+selector, func(ctx context.Context) ([]pod, error) { return r.askForPods(ctx, namespace, selector) })
	return withPodAddr(all, addr), err
}

// askForPods returns the running Pods that a field selector picks.
func (r *Resolver) askForPods(ctx context.Context, namespace, selector string) (out []pod, err error) {
	list, err := r.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{FieldSelector: selector, ResourceVersion: anyVersion.ResourceVersion})
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		if p := trimPod(&list.Items[i]); !p.done {
			out = append(out, p)
		}
	}
	return out, nil
}

func withPodAddr(all []pod, addr netip.Addr) []pod {
	return slices.DeleteFunc(slices.Clone(all), func(p pod) bool { return !slices.Contains(p.addrs, addr) })
}

// podByAddr resolves names such as 10-0-0-1.NS.pod.
func (r *Resolver) podByAddr(ctx context.Context, q query, port uint16) ([]gateway.Destination, error) {
	pods, err := r.podsWithAddr(ctx, q.namespace, q.podAddr)
	if err != nil {
		return nil, apiError(err, fmt.Sprintf("find the Pod with address %s in namespace %q", q.podAddr, q.namespace))
	}
	for _, p := range pods {
		if !p.hostNetwork {
			return []gateway.Destination{podDestination(p, q.podAddr, q.host, port)}, nil
		}
	}
	return nil, gateway.Errorf(gateway.ReasonNotFound, "see kubectl get pods -o wide -n "+q.namespace,
		"namespace %q has no Pod with the address %s", q.namespace, q.podAddr)
}

func podDestination(p pod, addr netip.Addr, host string, port uint16) gateway.Destination {
	return gateway.Destination{
		Host: host, Port: port, Kind: gateway.KindPod, Namespace: p.Namespace, Name: p.Name,
		Addr: netip.AddrPortFrom(addr, port), Pod: p.NamespacedName, Node: p.node,
	}
}

// nodeDestination connects to the address that the client sent or to the node's first one.
func nodeDestination(n *node, addr netip.Addr, host string, port uint16) ([]gateway.Destination, error) {
	if !addr.IsValid() {
		if len(n.addrs) == 0 {
			return nil, gateway.Errorf(gateway.ReasonHostUnreachable, "wait until the kubelet has registered", "node %s has no address", n.name)
		}
		addr = n.addrs[0]
	}
	return []gateway.Destination{{
		Host: host, Port: port, Kind: gateway.KindNode, Name: n.name, Addr: netip.AddrPortFrom(addr, port), Node: n.name,
	}}, nil
}

func (r *Resolver) allNodes(ctx context.Context) ([]node, error) {
	return r.nodes.get(ctx, "", func(ctx context.Context) ([]node, error) {
		list, err := r.client.CoreV1().Nodes().List(ctx, anyVersion)
		if err != nil {
			return nil, err
		}
		out := make([]node, 0, len(list.Items))
		for i := range list.Items {
			out = append(out, trimNode(&list.Items[i]))
		}
		return out, nil
	})
}

// nodeByName finds a node by its name, or by a host name without a dot that only it has. It
// returns nil if there is none.
func (r *Resolver) nodeByName(ctx context.Context, name string) (*node, error) {
	nodes, err := r.allNodes(ctx)
	if err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(nodes, func(n node) bool { return n.name == name }); i >= 0 {
		return &nodes[i], nil
	}
	if strings.Contains(name, ".") {
		return nil, nil
	}
	var found *node
	for i := range nodes {
		if slices.ContainsFunc(nodes[i].hostnames, func(h string) bool { return strings.EqualFold(h, name) }) {
			if found != nil {
				return nil, gateway.Errorf(gateway.ReasonUnsupported, "use the name that kubectl get nodes shows",
					"nodes %s and %s both have the host name %s", found.name, nodes[i].name, name)
			}
			found = &nodes[i]
		}
	}
	return found, nil
}
