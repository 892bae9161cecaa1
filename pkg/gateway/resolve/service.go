// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
)

func (r *Resolver) service(ctx context.Context, namespace, name string) (service, error) {
	return r.services.get(ctx, namespace+"/"+name, func(ctx context.Context) (service, error) {
		s, err := r.client.CoreV1().Services(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return service{}, err
		}
		return trimService(s), nil
	})
}

// ServicesOf returns the Services of a Pod's namespace that lead to it, as destinations: by their name, with each of their
// ports that is the Pod's port, or else with that one. The destination may be a Service whose endpoint is the Pod. Who may write the namespace's EndpointSlices decides what is in them.
func (r *Resolver) ServicesOf(ctx context.Context, pod gateway.Destination) (all []gateway.Destination, err error) {
	found, err := r.behind.get(ctx, pod.Namespace, func(ctx context.Context) (map[string][]endpoint, error) {
		list, err := r.client.DiscoveryV1().EndpointSlices(pod.Namespace).List(ctx, anyVersion)
		if err != nil {
			return nil, err
		}
		out := map[string][]endpoint{}
		for i := range list.Items {
			name := list.Items[i].Labels[discoveryv1.LabelServiceName]
			out[name] = append(out[name], trimSlices(pod.Namespace, list.Items[i:i+1])...)
		}
		return out, nil
	})
	if err != nil {
		return nil, apiError(err, fmt.Sprintf("list the EndpointSlices of namespace %q", pod.Namespace))
	}
	for name, endpoints := range found {
		ports, err := r.portsTo(ctx, name, endpoints, pod)
		if err != nil {
			return nil, apiError(err, fmt.Sprintf("read Service %s/%s", pod.Namespace, name))
		}
		for _, port := range ports {
			d := pod
			d.Host, d.Kind, d.Name, d.Port = name+"."+pod.Namespace, gateway.KindService, name, port
			all = append(all, d)
		}
	}
	return all, nil
}

// portsTo returns the ports by which a Service leads to the port of a Pod; none if the Pod is no endpoint of it.
func (r *Resolver) portsTo(ctx context.Context, name string, endpoints []endpoint, pod gateway.Destination) (ports []uint16, err error) {
	endpoints = slices.DeleteFunc(slices.Clone(endpoints), func(e endpoint) bool {
		return e.addr != pod.Addr.Addr() && (e.pod.Name == "" || e.pod != pod.Pod) // it may have other addresses
	})
	if len(endpoints) == 0 || name == "" {
		return nil, nil
	}
	svc, err := r.service(ctx, pod.Namespace, name)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	for _, p := range svc.ports {
		if p.tcp && slices.ContainsFunc(endpoints, func(e endpoint) bool { return e.ports[p.name] == pod.Addr.Port() }) {
			ports = append(ports, p.number)
		}
	}
	if len(ports) == 0 || svc.headless {
		ports = append(ports, pod.Addr.Port())
	}
	return ports, nil
}

func (r *Resolver) endpointsOf(ctx context.Context, svc service) ([]endpoint, error) {
	return r.endpoints.get(ctx, svc.String(), func(ctx context.Context) ([]endpoint, error) {
		list, err := r.client.DiscoveryV1().EndpointSlices(svc.Namespace).List(ctx, metav1.ListOptions{
			LabelSelector:   labels.Set{discoveryv1.LabelServiceName: svc.Name}.String(),
			ResourceVersion: anyVersion.ResourceVersion,
		})
		if err != nil {
			return nil, err
		}
		return trimSlices(svc.Namespace, list.Items), nil
	})
}

// serviceEndpoints returns a Service's endpoints for a port: those that are ready or, if
// there are none, those that still serve while they terminate, as kube-proxy picks them.
func (r *Resolver) serviceEndpoints(ctx context.Context, svc service, q query, port uint16) ([]gateway.Destination, error) {
	if q.hostname != "" && !svc.headless {
		return nil, gateway.Errorf(gateway.ReasonNotFound, "use the Service's own name",
			"Service %s is not headless, so its Pods have no names", svc)
	}
	name, err := targetPort(svc, port)
	if err != nil {
		return nil, err
	}
	endpoints, err := r.endpointsOf(ctx, svc)
	if err != nil {
		return nil, apiError(err, fmt.Sprintf("list the EndpointSlices of Service %s", svc))
	}
	if q.hostname != "" {
		endpoints = slices.DeleteFunc(slices.Clone(endpoints), func(e endpoint) bool {
			return e.hostname != q.hostname && !strings.EqualFold(dashed(e.addr), q.hostname)
		})
		if len(endpoints) == 0 {
			return nil, gateway.Errorf(gateway.ReasonNotFound, fmt.Sprintf("see kubectl get endpointslices -n %s -l %s=%s", svc.Namespace, discoveryv1.LabelServiceName, svc.Name),
				"Service %s has no Pod with the host name %q", svc, q.hostname)
		}
	}
	for _, usable := range []func(endpoint) bool{
		func(e endpoint) bool { return e.ready },
		func(e endpoint) bool { return e.serving },
	} {
		if all := destinations(svc, q, port, name, endpoints, usable); len(all) > 0 {
			return all, nil
		}
	}
	return nil, gateway.Errorf(gateway.ReasonNoEndpoints, fmt.Sprintf("check the Service's selector and the readiness of its Pods: kubectl get endpointslices -n %s -l %s=%s",
		svc.Namespace, discoveryv1.LabelServiceName, svc.Name), "Service %s has no ready endpoint for port %d", svc, port)
}

func destinations(svc service, q query, port uint16, name string, endpoints []endpoint, usable func(endpoint) bool) []gateway.Destination {
	var all []gateway.Destination
	for _, e := range endpoints {
		target, ok := e.ports[name]
		if svc.headless {
			target, ok = port, true
		}
		if !ok || !usable(e) {
			continue
		}
		all = append(all, gateway.Destination{
			Host: q.host, Port: port, Kind: gateway.KindService, Namespace: svc.Namespace, Name: svc.Name,
			Addr: netip.AddrPortFrom(e.addr, target), Pod: e.pod, Node: e.node,
		})
	}
	return all
}

// targetPort returns the name of the Service's port. DNS gives the addresses of a headless
// Service's Pods, and clients connect to the port that they asked for: there it has no
// meaning.
func targetPort(svc service, port uint16) (string, error) {
	if svc.headless {
		return "", nil
	}
	var known []string
	udp := false
	for _, p := range svc.ports {
		if p.number == port && p.tcp {
			return p.name, nil
		}
		udp = udp || p.number == port
		if p.tcp {
			known = append(known, fmt.Sprint(p.number))
		}
	}
	if udp {
		return "", gateway.Errorf(gateway.ReasonUnsupported, "only TCP can be forwarded", "port %d of Service %s is not a TCP port", port, svc)
	}
	hint := "the Service has no TCP ports"
	if len(known) > 0 {
		hint = "use one of its TCP ports: " + strings.Join(known, ", ")
	}
	return "", gateway.Errorf(gateway.ReasonNoEndpoints, hint, "Service %s has no port %d", svc, port)
}

// dashed is how an endpoint without a host name is named in DNS.
func dashed(a netip.Addr) string {
	return strings.NewReplacer(".", "-", ":", "-").Replace(a.String())
}

// servicesWithAddr returns the Services with a cluster IP, in one namespace or, with "", in
// all.
func (r *Resolver) servicesWithAddr(ctx context.Context, namespace string, addr netip.Addr) ([]service, error) {
	return r.serviceIPs.get(ctx, namespace+"/"+addr.String(), func(ctx context.Context) ([]service, error) {
		list, err := r.client.CoreV1().Services(namespace).List(ctx, metav1.ListOptions{
			FieldSelector: "spec.clusterIP=" + addr.String(), ResourceVersion: anyVersion.ResourceVersion,
		})
		if err != nil {
			return nil, err
		}
		return withAddr(list.Items, addr), nil
	})
}

// servicesWithSecondAddr finds cluster IPs of the second family, which field selectors do
// not see.
func (r *Resolver) servicesWithSecondAddr(ctx context.Context, namespace string, addr netip.Addr) ([]service, error) {
	all, err := r.servicesOfManyAddrs(ctx, namespace)
	return slices.DeleteFunc(slices.Clone(all), func(s service) bool { return !slices.Contains(s.addrs, addr) }), err
}

// servicesWithOuterAddr finds external IPs and those of load balancers. Several Services may have
// one, each with ports of its own.
func (r *Resolver) servicesWithOuterAddr(ctx context.Context, namespace string, addr netip.Addr) ([]service, error) {
	all, err := r.servicesOfManyAddrs(ctx, namespace)
	return slices.DeleteFunc(slices.Clone(all), func(s service) bool { return s.headless || !slices.Contains(s.outer, addr) }), err
}

// servicesWithOuterName finds host names of load balancers.
func (r *Resolver) servicesWithOuterName(ctx context.Context, namespace, host string) ([]service, error) {
	all, err := r.servicesOfManyAddrs(ctx, namespace)
	return slices.DeleteFunc(slices.Clone(all), func(s service) bool { return !slices.Contains(s.outerNames, host) }), err
}

// servicesOfManyAddrs returns the Services that have more addresses than their first cluster IP, or names.
func (r *Resolver) servicesOfManyAddrs(ctx context.Context, namespace string) ([]service, error) {
	return r.serviceIPs.get(ctx, namespace+"/*", func(ctx context.Context) ([]service, error) {
		list, err := r.client.CoreV1().Services(namespace).List(ctx, anyVersion)
		if err != nil {
			return nil, err
		}
		var out []service
		for i := range list.Items {
			if s := trimService(&list.Items[i]); len(s.addrs) > 1 || len(s.outer) > 0 || len(s.outerNames) > 0 {
				out = append(out, s)
			}
		}
		return out, nil
	})
}

// withPort returns the Service that has a port, or the first one.
func withPort(all []service, port uint16) service {
	for _, s := range all {
		if slices.ContainsFunc(s.ports, func(p servicePort) bool { return p.tcp && p.number == port }) {
			return s
		}
	}
	return all[0]
}

func withAddr(items []corev1.Service, addr netip.Addr) []service {
	var out []service
	for i := range items {
		if s := trimService(&items[i]); slices.Contains(s.addrs, addr) {
			out = append(out, s)
		}
	}
	return out
}
