// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
)

// external returns the destination of a host outside of the cluster. The owner of the name chooses
// its addresses, so an address is what it is by itself: a rule that allows the name allows no
// object of the cluster.
func (r *Resolver) external(ctx context.Context, host string, port uint16) ([]gateway.Destination, error) {
	if d, ok := r.apiServer(host, port); ok || r.o.LookUp == nil {
		d.Host, d.Port, d.Kind = host, port, gateway.KindExternal
		return []gateway.Destination{d}, nil
	}
	if err := gateway.CheckName(ctx, gateway.Destination{Host: host, Port: port, Kind: gateway.KindExternal}); err != nil {
		return nil, err
	}
	balanced, err := r.balancedBy(ctx, host, port)
	if err != nil {
		return nil, err
	}
	addrs, err := r.lookUpHost(ctx, host)
	if err != nil {
		return nil, err
	}
	all, err := r.addressOf(ctx, host, addrs[0], port)
	for i := range all {
		all[i].Service = cmp.Or(all[i].Service, balanced)
	}
	return all, err
}

// balancedBy returns the Service whose load balancer has a host name, if there is one and the client may reach it. The name
// is no other way to the Service's endpoints: in many clusters, who writes the Service chooses the name.
func (r *Resolver) balancedBy(ctx context.Context, host string, port uint16) (balanced types.NamespacedName, err error) {
	found, err := search(ctx, r.o.Namespaces, netip.Addr{}, func(ctx context.Context, namespace string, _ netip.Addr) ([]service, error) {
		return r.servicesWithOuterName(ctx, namespace, host)
	})
	switch {
	case len(found) > 0:
	case err == nil, apierrors.IsForbidden(err): // then no address is taken for one outside of the cluster either
		return balanced, nil
	default:
		return balanced, apiError(err, fmt.Sprintf("find out which Service has the load balancer %s", host))
	}
	if err := gateway.CheckOwner(ctx, host, port); err != nil {
		return balanced, err
	}
	balanced = withPort(found, port).NamespacedName
	return balanced, gateway.CheckName(ctx, gateway.Destination{Host: host, Port: port, Kind: gateway.KindService, Namespace: balanced.Namespace, Name: balanced.Name})
}

// lookUpHost returns the addresses of a host outside of the cluster, at least one.
func (r *Resolver) lookUpHost(ctx context.Context, host string) ([]netip.Addr, error) {
	addrs, err := r.names.get(ctx, host, func(ctx context.Context) ([]netip.Addr, error) { return r.o.LookUp(ctx, host) })
	var unknown *net.DNSError
	switch {
	case errors.As(err, &unknown) && unknown.IsNotFound, err == nil && len(addrs) == 0:
		return nil, gateway.Errorf(gateway.ReasonNotFound, "check the name", "%s is no host of the cluster, and DNS has no address for it", host)
	case err != nil:
		return nil, gateway.Errorf(gateway.ReasonPathDown, "check the DNS servers of the proxy's own network", "find the address of %s: %w", host, err)
	}
	return addrs, nil
}

// addressOf returns what one address of a host outside of the cluster leads to.
func (r *Resolver) addressOf(ctx context.Context, host string, addr netip.Addr, port uint16) ([]gateway.Destination, error) {
	all, _, err := r.byAddr(ctx, addr.Unmap(), port)
	if err != nil {
		return nil, err
	}
	for i := range all {
		if all[i].Addr.IsValid() { // otherwise it is the API server, by its own name
			all[i].Host, all[i].Port = host, port // rules name hosts as well as addresses
		}
	}
	return all, nil
}

// otherAddresses returns the other addresses of a host outside of the cluster that lead out of it, too.
func (r *Resolver) otherAddresses(ctx context.Context, d gateway.Destination) (others []gateway.Destination, err error) {
	if _, err := netip.ParseAddr(d.Host); err == nil || !d.Addr.IsValid() || r.o.LookUp == nil {
		return nil, nil
	}
	addrs, err := r.lookUpHost(ctx, d.Host)
	if err != nil {
		return nil, err
	}
	for _, addr := range addrs[:min(len(addrs), maxJudged)] {
		all, err := r.addressOf(ctx, d.Host, addr, d.Port)
		if err == nil && all[0].Kind == gateway.KindExternal && all[0].Addr != d.Addr {
			all[0].Service, all[0].Through = d.Service, d.Through // what denies these denies the other addresses, too
			others = append(others, all[0])
		}
		if len(others) == maxAlternatives {
			break
		}
	}
	return others, nil
}

// SystemLookUp asks this machine's resolver. It takes the name as absolute: search domains of a Pod
// would make a name of the cluster out of it.
func SystemLookUp(ctx context.Context, host string) ([]netip.Addr, error) {
	return net.DefaultResolver.LookupNetIP(ctx, "ip", host+".")
}
