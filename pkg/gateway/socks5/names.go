// SPDX-License-Identifier: Apache-2.0

package socks5

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
)

// nameCheck judges the names of one request. The last one that is allowed is the one that is looked up.
type nameCheck struct {
	authorizer gateway.NameAuthorizer
	client     user.Info

	asked, sure bool
	byAddress   bool // what is asked for now has been found by its address
	refusals    []error
}

func (n *nameCheck) check(ctx context.Context, d gateway.Destination) (sure bool, err error) {
	n.asked = true
	sure, err = n.authorizer.AuthorizeName(ctx, n.client, d)
	switch {
	case d.Kind == "":
		n.byAddress, n.sure = true, sure
	case err == nil:
		n.sure = sure
	case n.byAddress:
		n.sure = false
	default:
		n.refusals = append(n.refusals, err)
	}
	return sure, err
}

// hides reports whether the client must not learn why there is no connection. A client that no rule allows a name does not
// learn whether the name exists, and no client learns which object has an address if it may not reach that object. A
// refusal that was decided before anything was looked up does not say that.
func (n *nameCheck) hides(err error) bool {
	if !n.asked || n.sure || slices.ContainsFunc(n.refusals, func(refusal error) bool { return errors.Is(err, refusal) }) {
		return false
	}
	switch gateway.ReasonOf(err) {
	case gateway.ReasonDenied, gateway.ReasonNotFound, gateway.ReasonNoEndpoints, gateway.ReasonUnsupported:
		return true
	}
	return false
}

// refusal is what the client gets instead, always the same.
func (n *nameCheck) refusal(t target) error {
	what := "name"
	if _, err := netip.ParseAddr(t.host); err == nil {
		what = "address"
	}
	return gateway.Errorf(gateway.ReasonDenied, fmt.Sprintf("ask for a rule that allows this %s, or for the right to what it stands for", what),
		"%s is denied: no rule allows this %s to %q", net.JoinHostPort(t.host, strconv.Itoa(int(t.port))), what, n.client.GetName())
}
