// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/destinations"
)

// Authorizer is a gateway.Authorizer. Its zero value allows Services, Pods and nodes whose
// addresses are not local ones.
type Authorizer struct {
	// Allow are addresses outside of the cluster that clients may connect to.
	Allow []destinations.Rule
	// Deny are hosts and addresses that no client may connect to.
	Deny []destinations.Rule
	// AllowLocal lifts the denial of loopback, link-local and metadata addresses.
	AllowLocal bool
	// LocalAPIServer is the host:port of an API server on loopback. It is exempt from that
	// denial for clients of this machine, who reach it without the proxy, too.
	LocalAPIServer string
	// Unresolved tells whether the path resolves a name outside of the cluster itself, where
	// loopback and metadata addresses are denied, too. Such a name needs a rule of Allow. nil
	// is for paths that resolve none: they deny such names.
	Unresolved func(host string, port uint16) bool
	// File has the rules by user; nil has none.
	File *File
	// Review asks the API server; nil does not.
	Review *Review
}

// alwaysDenied are the addresses that an agent denies by default, too.
var alwaysDenied = func() []destinations.Rule {
	list, err := destinations.ParseRules(destinations.DefaultDeny)
	if err != nil {
		panic(err) // a constant
	}
	return list
}()

// Authorize implements gateway.Authorizer.
func (a *Authorizer) Authorize(ctx context.Context, client user.Info, d gateway.Destination) error {
	allowed, err := a.checkAddress(d)
	if err != nil {
		return denied(d, "", "%w", err)
	}
	if a.File != nil {
		matched, err := a.File.check(client, d)
		if err != nil {
			return err
		}
		allowed = allowed || matched
	}
	if d.Kind == gateway.KindExternal {
		if !allowed {
			return denied(d, "add it to --allow or to the rule file", "no Service, Pod or node has the address %v", d.Addr)
		}
		return nil // the API server has no object to authorize
	}
	if a.Review != nil {
		return a.Review.check(ctx, client, d)
	}
	return nil
}

// CheckHost implements gateway.HostChecker.
func (a *Authorizer) CheckHost(host string, port uint16) error {
	if _, err := (&destinations.Policy{Deny: a.Deny}).CheckName(host, int(port)); err != nil {
		return denied(gateway.Destination{Host: host, Port: port}, "", "%w", err)
	}
	return nil
}

// checkAddress judges the destination after resolution, and the host as the client sent it.
// It tells whether a rule of --allow names the destination.
func (a *Authorizer) checkAddress(d gateway.Destination) (allowed bool, err error) {
	if !d.Addr.IsValid() {
		return a.checkName(d)
	}
	deny := destinations.Policy{Deny: a.Deny}
	if !a.AllowLocal && !a.isLocalAPIServer(d) {
		deny.Deny = slices.Concat(alwaysDenied, a.Deny)
	}
	port := int(d.Port)
	if _, err := deny.CheckName(d.Host, port); err != nil {
		return false, err
	}
	if err := deny.CheckAddr(d.Addr.String(), destinations.GrantNone); err != nil {
		return false, err
	}
	literal := net.JoinHostPort(d.Host, strconv.Itoa(port))
	if net.ParseIP(d.Host) != nil {
		if err := deny.CheckAddr(literal, destinations.GrantNone); err != nil {
			return false, err
		}
	}
	if len(a.Allow) == 0 {
		return false, nil
	}
	allow := destinations.Policy{Allow: a.Allow}
	grant, err := allow.CheckName(d.Host, port)
	if err != nil {
		return false, err
	}
	return allow.CheckAddr(d.Addr.String(), grant) == nil, nil
}

// checkName judges a destination whose name the path resolves.
func (a *Authorizer) checkName(d gateway.Destination) (allowed bool, err error) {
	if d.Kind != gateway.KindExternal || a.Unresolved == nil || !a.Unresolved(d.Host, d.Port) {
		return false, fmt.Errorf("its address is not known, so it cannot be checked")
	}
	if gateway.IsLoopback(strings.TrimSuffix(d.Host, ".")) && !a.isLocalAPIServer(d) {
		return false, fmt.Errorf("it is a loopback address")
	}
	deny := destinations.Policy{Deny: slices.Concat(alwaysDenied, a.Deny)}
	if _, err := deny.CheckName(d.Host, int(d.Port)); err != nil {
		return false, err
	}
	allow := destinations.Policy{Allow: a.Allow}
	grant, err := allow.CheckName(d.Host, int(d.Port))
	return grant&destinations.GrantNamed != 0, err
}

func (a *Authorizer) isLocalAPIServer(d gateway.Destination) bool {
	return d.Kind == gateway.KindExternal && gateway.SameAddress(d.Host, d.Port, a.LocalAPIServer)
}

// denied returns the refusal of a destination.
func denied(d gateway.Destination, hint, format string, args ...any) error {
	return gateway.Errorf(gateway.ReasonDenied, hint, "%s is denied: %w", d, fmt.Errorf(format, args...))
}
