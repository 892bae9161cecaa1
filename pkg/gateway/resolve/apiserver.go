// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
)

// apiServer returns the destination of the API server, if the host and the port are its own.
func (r *Resolver) apiServer(host string, port uint16) (gateway.Destination, bool) {
	if !gateway.SameAddress(host, port, r.o.APIServer) {
		return gateway.Destination{}, false
	}
	host = strings.TrimSuffix(host, ".")
	d := gateway.Destination{Host: host, Port: port, Kind: gateway.KindExternal, Service: gateway.APIServerService}
	if addr, err := netip.ParseAddr(host); err == nil {
		d.Addr = netip.AddrPortFrom(addr.Unmap(), port)
	}
	return d, true
}

// asAPIServer returns the destination of the API server, if a Service and its port lead to it. Where it is, the kubeconfig
// says and not the endpoints of the Service: those are nodes or hosts outside of the cluster, to which users have no
// right, and users write EndpointSlices.
func (r *Resolver) asAPIServer(svc service, port uint16) (gateway.Destination, bool) {
	if svc.NamespacedName == gateway.APIServerService && port == gateway.APIServerServicePort {
		host, number, err := net.SplitHostPort(r.o.APIServer)
		own, parseErr := strconv.ParseUint(number, 10, 16)
		if err == nil && parseErr == nil {
			return r.apiServer(host, uint16(own))
		}
	}
	for _, addr := range svc.addrs {
		if d, ok := r.apiServer(addr.String(), port); ok {
			return d, true
		}
	}
	return gateway.Destination{}, false
}

// APIServers returns the addresses of the API server: that of APIServer, if it is one, and the
// endpoints of its Service.
func (r *Resolver) APIServers(ctx context.Context) ([]netip.AddrPort, error) {
	var all []netip.AddrPort
	if a, err := netip.ParseAddrPort(r.o.APIServer); err == nil {
		all = append(all, netip.AddrPortFrom(a.Addr().Unmap(), a.Port()))
	}
	endpoints, err := r.endpointsOf(ctx, service{NamespacedName: gateway.APIServerService})
	if err != nil {
		return nil, apiError(err, fmt.Sprintf("list the EndpointSlices of Service %s", gateway.APIServerService))
	}
	for _, e := range endpoints {
		for _, port := range e.ports {
			all = append(all, netip.AddrPortFrom(e.addr, port))
		}
	}
	return all, nil
}
