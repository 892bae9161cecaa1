// SPDX-License-Identifier: Apache-2.0

package connect

import (
	"context"
	"net"
	"net/netip"
	"strconv"

	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/fairlead-dev/fairlead/pkg/apis/tunnel/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/gateway"
)

// find resolves what the client has asked for, and asks whether it may connect to that. A client without the right does
// not learn whether the destination exists, nor which object it is: log and audit annotations have that.
func (h *Handler) find(ctx context.Context, client user.Info, o *v1alpha1.TunnelAgentConnectOptions, r *record) (gateway.Destination, error) {
	sure := false
	ctx = gateway.WithNameCheck(ctx, func(ctx context.Context, d gateway.Destination) (bool, error) {
		allowed, err := h.cfg.Destinations.AuthorizeName(ctx, client, d)
		sure = allowed && err == nil
		return allowed, err
	})
	host, port := o.Host, uint16(o.Port)
	d, err := h.cfg.Resolver.Resolve(ctx, host, port)
	if err == nil {
		r.destination(d)
		audit.AddAuditAnnotations(ctx, auditPrefix+"kind", string(d.Kind), auditPrefix+"object", d.Namespace+"/"+d.Name, auditPrefix+"address", d.Addr.String())
		err = h.cfg.Destinations.Authorize(ctx, client, d)
	}
	if err == nil {
		return d, nil
	}
	if _, failed := netip.ParseAddr(host); failed == nil {
		sure = sure || h.cfg.Destinations.mayKnow(ctx, client)
	}
	if !hides(err, sure) {
		return d, err
	}
	audit.AddAuditAnnotation(ctx, auditPrefix+"refusal", err.Error())
	return d, &hiddenError{shown: refusal(client, host, port), cause: err}
}

// hides reports whether the client must not learn an error: one that says what an object is, or whether there is one.
func hides(err error, sure bool) bool {
	switch gateway.ReasonOf(err) {
	case gateway.ReasonDenied:
		return true
	case gateway.ReasonNotFound, gateway.ReasonNoEndpoints, gateway.ReasonUnsupported:
		return !sure
	}
	return false
}

// refusal is what a client learns: the same for all destinations, with nothing but what it has sent.
func refusal(client user.Info, host string, port uint16) error {
	return gateway.Errorf(gateway.ReasonDenied, "ask for the verb "+v1alpha1.VerbConnect+" on the destination, in "+
		"destinations/services, destinations/pods, destinations/nodes or destinations/addresses of the group "+v1alpha1.GroupName,
		"%s is denied: the API server does not let %q connect to it", net.JoinHostPort(host, strconv.Itoa(int(port))), client.GetName())
}

// hiddenError is an error whose cause the client does not learn.
type hiddenError struct{ shown, cause error }

func (e *hiddenError) Error() string { return e.shown.Error() }
func (e *hiddenError) Unwrap() error { return e.shown }
