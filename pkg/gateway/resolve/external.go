// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"context"
	"errors"
	"net"
	"net/netip"

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
	addrs, err := r.lookUpHost(ctx, host)
	if err != nil {
		return nil, err
	}
	return r.addressOf(ctx, host, addrs[0], port)
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
		all[i].Host, all[i].Port = host, port // rules name hosts as well as addresses
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
