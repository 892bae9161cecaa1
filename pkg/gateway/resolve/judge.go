// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
)

const (
	// maxJudged bounds how many endpoints of a Service are looked up for one request.
	maxJudged = 8
	// maxAlternatives is how many a dialer tries.
	maxAlternatives = 2
)

// own reports whether an endpoint is a Pod of the Service's namespace, and returns it with that
// Pod. Users write EndpointSlices with any address and any reference to a Pod, so only the
// Pod itself says which address it has. A Pod in its node's network has the node's address, at
// which the kubelet and others listen as well: only the ports that its containers declare are
// its own.
func (r *Resolver) own(ctx context.Context, d gateway.Destination) (gateway.Destination, bool, error) {
	if d.Kind != gateway.KindService {
		return d, true, nil
	}
	named, err := r.namesPort(ctx, d)
	switch {
	case err != nil:
		return d, false, apiError(err, fmt.Sprintf("read Service %s/%s", d.Namespace, d.Name))
	case r.o.PodsByName && !named && d.Pod.Name != "":
		d.Kind, d.Namespace, d.Name = gateway.KindPod, d.Pod.Namespace, d.Pod.Name
		return d, true, nil
	case r.o.PodsByName:
		return d, true, nil
	case !named:
		return d, false, nil
	}
	return r.podOf(ctx, d)
}

// podOf returns an endpoint with the Pod of the Service's namespace that has its address and port.
func (r *Resolver) podOf(ctx context.Context, d gateway.Destination) (gateway.Destination, bool, error) {
	var pods []pod
	var err error
	if d.Pod.Name != "" {
		pods, err = r.listPods(ctx, d.Namespace, "metadata.name="+d.Pod.Name, d.Addr.Addr())
	}
	if len(pods) == 0 && err == nil {
		pods, err = r.podsWithAddr(ctx, d.Namespace, d.Addr.Addr())
	}
	switch {
	case apierrors.IsForbidden(err):
		return d, false, gateway.Errorf(gateway.ReasonDenied, fmt.Sprintf("ask for the right to list Pods in namespace %q", d.Namespace),
			"whether the endpoint %s of Service %s/%s is a Pod of its namespace cannot be checked: %w", d.Addr, d.Namespace, d.Name, err)
	case err != nil:
		return d, false, apiError(err, fmt.Sprintf("find the Pod with address %s in namespace %q", d.Addr.Addr(), d.Namespace))
	}
	for _, p := range pods {
		if !p.hostNetwork || slices.Contains(p.declared, d.Addr.Port()) {
			d.Pod, d.Node = p.NamespacedName, p.node
			return d, true, nil
		}
	}
	return d, false, nil
}

// namesPort reports whether the port of a Service's endpoint is one of the Service. A headless Service
// leads to any port of its Pods, but the right to it is one to the ports that it names.
func (r *Resolver) namesPort(ctx context.Context, d gateway.Destination) (bool, error) {
	if d.Port != d.Addr.Port() {
		return true, nil // the Service has mapped it
	}
	svc, err := r.service(context.WithValue(ctx, freshKey{}, nil), d.Namespace, d.Name) // it was read for the endpoint
	if err != nil {
		return false, err
	}
	return !svc.headless || slices.ContainsFunc(svc.ports, func(p servicePort) bool {
		return p.tcp && (p.number == d.Port || p.target == d.Port)
	}), nil
}

// pick returns the first endpoint that is a Pod of the Service's namespace. Without one, the
// first endpoint is what its address is by itself, as if the client had asked for that: the
// right to a Service is none to the addresses that its EndpointSlices name.
func (r *Resolver) pick(ctx context.Context, all []gateway.Destination) (gateway.Destination, error) {
	for _, d := range all[:min(len(all), maxJudged)] {
		if d, ok, err := r.own(ctx, d); ok || err != nil {
			return d, err
		}
	}
	return r.byItself(ctx, all[0])
}

func (r *Resolver) byItself(ctx context.Context, d gateway.Destination) (gateway.Destination, error) {
	// Who may reach the Service, and may write its EndpointSlices, does not learn whose address this is.
	if err := gateway.CheckOwner(ctx, d.Addr.Addr().String(), d.Addr.Port()); err != nil {
		return d, err
	}
	all, _, err := r.byAddr(gateway.WithNameCheck(ctx, nil), d.Addr.Addr(), d.Addr.Port())
	if err != nil {
		return d, err
	}
	named, err := r.namesPort(ctx, d)
	if err != nil {
		return d, apiError(err, fmt.Sprintf("read Service %s/%s", d.Namespace, d.Name))
	}
	found := all[0]
	found.Service, found.Through = cmp.Or(found.Service, types.NamespacedName{Namespace: d.Namespace, Name: d.Name}), d.Through
	switch {
	case found.Kind == gateway.KindService:
		return d, gateway.Errorf(gateway.ReasonDenied, fmt.Sprintf("connect to Service %s/%s itself", found.Namespace, found.Name),
			"the endpoint %s of Service %s/%s is the address of another Service", d.Addr, d.Namespace, d.Name)
	case found.Kind == gateway.KindPod && found.Namespace == d.Namespace && named: // by an address of the second family
		d.Pod, d.Node = types.NamespacedName{Namespace: found.Namespace, Name: found.Name}, found.Node
		return d, nil
	case found.Kind != gateway.KindExternal:
		found.Host, found.Port = d.Host, d.Port // rules may deny what the client sent
		return found, nil
	default:
		return found, nil
	}
}

// othersByThemselves returns what the other endpoints of a Service are whose first one is a node or
// a Pod of another namespace. Endpoints that cannot be judged are left out.
func (r *Resolver) othersByThemselves(ctx context.Context, d gateway.Destination, all []gateway.Destination) (others []gateway.Destination) {
	for _, o := range all[:min(len(all), maxJudged)] {
		if o.Addr == d.Addr || o.Kind != gateway.KindService {
			continue
		}
		o, err := r.pick(ctx, []gateway.Destination{o})
		if err == nil {
			others = append(others, o)
		}
		if len(others) == maxAlternatives {
			break
		}
	}
	return others
}

// ownOf returns those endpoints that are Pods of the Service's namespace, up to the number
// that a dialer may want.
func (r *Resolver) ownOf(ctx context.Context, all []gateway.Destination) (own []gateway.Destination, err error) {
	for _, d := range all[:min(len(all), maxJudged)] {
		d, ok, err := r.own(ctx, d)
		if err != nil {
			return nil, err
		}
		if ok {
			own = append(own, d)
		}
		if len(own) == maxAlternatives {
			break
		}
	}
	return own, nil
}
