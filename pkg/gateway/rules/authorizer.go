// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
	"github.com/fairlead-dev/fairlead/pkg/gateway/resolve"
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
	// Only, if not empty, are all destinations that clients may connect to in addition to the API server.
	Only []destinations.Rule
	// APIServer is the host:port of the API server, which authenticates its clients itself: all of them
	// may connect to it, unless a rule denies it. Rules that deny its Service deny it, too.
	APIServer string
	// APIServers returns the other addresses of the API server, such as those of its nodes. It is asked
	// only if a rule denies its Service. nil knows none.
	APIServers func(context.Context) ([]netip.AddrPort, error)
	// ServicesOf returns the Services that lead to a Pod, as destinations with their own names and ports. Rules that deny
	// such a Service deny the Pod, too, also behind another Service. It is asked only if rules may deny Services. nil
	// knows none.
	ServicesOf func(ctx context.Context, pod gateway.Destination) ([]gateway.Destination, error)
	// Namespace is that of Services whose names are written without one; ClusterDomain is the suffix of
	// the cluster's names, by default "cluster.local".
	Namespace, ClusterDomain string
	// LocalAPIServer is the host:port of an API server on loopback. It is exempt from that
	// denial for clients of this machine, who reach it without the proxy, too.
	LocalAPIServer string
	// Unresolved reports whether the path resolves a name outside of the cluster itself, where
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
	also, err := a.alsoServices(ctx, client, d)
	if err != nil {
		return err
	}
	for _, service := range also {
		if err := a.checkNames(service); err != nil {
			return denied(d, "", "%w", err)
		}
	}
	if a.File != nil {
		matched, err := a.File.check(client, d, also)
		if err != nil {
			return err
		}
		allowed = allowed || matched
	}
	if d.Kind == gateway.KindExternal {
		if !allowed {
			return outside(d)
		}
		return nil // the API server has no object to authorize
	}
	if a.Review != nil {
		return a.Review.check(ctx, client, d)
	}
	return nil
}

// outside is the refusal of what no rule allows outside of the cluster. It does not say where a name leads.
func outside(d gateway.Destination) error {
	return denied(d, "add it to --allow or to the rule file", "it is no Service, Pod or node")
}

// CheckHost implements gateway.HostChecker.
func (a *Authorizer) CheckHost(host string, port uint16) error {
	d := gateway.Destination{Host: host, Port: port}
	if err := a.checkNames(d); err != nil {
		return denied(d, "", "%w", err)
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		return a.checkLiteral(d, netip.AddrPortFrom(addr, port).String())
	}
	return nil
}

// checkLiteral judges an address that the client sent by itself.
func (a *Authorizer) checkLiteral(d gateway.Destination, address string) error {
	always, deny := destinations.Policy{Deny: alwaysDenied}, destinations.Policy{Deny: a.Deny}
	if err := always.CheckAddr(address, destinations.GrantNone); err != nil && !a.AllowLocal && !gateway.SameAddress(d.Host, d.Port, a.LocalAPIServer) {
		return denied(d, "use the address of a Service, a Pod or a node", "it is a loopback, link-local, unspecified or metadata address: %w", err)
	}
	if err := deny.CheckAddr(address, destinations.GrantNone); err != nil {
		return denied(d, "", "%w", err)
	}
	return nil
}

// checkNames compares --deny with all names of a destination: a rule for one spelling of a name holds for all.
func (a *Authorizer) checkNames(d gateway.Destination) error {
	if len(a.Deny) == 0 {
		return nil
	}
	deny := destinations.Policy{Deny: a.Deny}
	for _, name := range a.names(d) {
		if _, err := deny.CheckName(name, int(d.Port)); err != nil {
			return err
		}
	}
	return nil
}

// names returns all spellings of the host, and of the object that it leads to.
func (a *Authorizer) names(d gateway.Destination) []string {
	names := append([]string{d.Host}, resolve.Names(d.Host, a.Namespace, a.ClusterDomain)...)
	switch d.Kind {
	case gateway.KindService:
		return append(names, resolve.ServiceNames(d.Name, d.Namespace, a.Namespace, a.ClusterDomain)...)
	case gateway.KindNode:
		return append(names, d.Name)
	}
	return names
}

// listed reports whether --only has a destination, by one of its names, by its address, or by the address
// that the client sent, such as the cluster IP of a Service.
func (a *Authorizer) listed(d gateway.Destination) bool {
	if len(a.Only) == 0 || matches(a.Only, d) {
		return true
	}
	only := destinations.Policy{Allow: a.Only}
	return only.CheckAddr(net.JoinHostPort(d.Host, strconv.Itoa(int(d.Port))), destinations.GrantNone) == nil ||
		slices.ContainsFunc(a.names(d), func(name string) bool {
			grant, _ := only.CheckName(name, int(d.Port)) // it denies nothing
			return grant&destinations.GrantNamed != 0
		})
}

// checkAddress judges the destination after resolution, and the host as the client sent it.
// It reports whether a rule of --allow names the destination.
func (a *Authorizer) checkAddress(d gateway.Destination) (allowed bool, err error) {
	if !d.Addr.IsValid() {
		return a.checkName(d)
	}
	deny := destinations.Policy{Deny: a.Deny}
	if !a.AllowLocal && !a.isLocalAPIServer(d) {
		deny.Deny = slices.Concat(alwaysDenied, a.Deny)
	}
	if err := a.checkNames(d); err != nil {
		return false, err
	}
	if err := deny.CheckAddr(d.Addr.String(), destinations.GrantNone); err != nil {
		return false, err
	}
	literal := net.JoinHostPort(d.Host, strconv.Itoa(int(d.Port)))
	if net.ParseIP(d.Host) != nil {
		if err := deny.CheckAddr(literal, destinations.GrantNone); err != nil {
			return false, err
		}
	}
	if a.isAPIServer(d) {
		return true, nil
	}
	if !a.listed(d) {
		return false, errNotListed
	}
	return len(a.Allow) > 0 && matches(a.Allow, d), nil
}

var errNotListed = errors.New("it is not in the list of --only")

// matches reports whether one of these rules has the name or the address of a destination.
func matches(rules []destinations.Rule, d gateway.Destination) bool {
	allow := destinations.Policy{Allow: rules}
	grant, _ := allow.CheckName(d.Host, int(d.Port)) // it denies nothing
	if !d.Addr.IsValid() {
		return grant&destinations.GrantNamed != 0
	}
	return allow.CheckAddr(d.Addr.String(), grant) == nil
}

// checkName judges a destination whose name the path resolves.
func (a *Authorizer) checkName(d gateway.Destination) (allowed bool, err error) {
	if d.Kind != gateway.KindExternal || a.Unresolved == nil || !a.Unresolved(d.Host, d.Port) {
		return false, fmt.Errorf("its address is not known, so it cannot be checked")
	}
	if gateway.IsLoopback(strings.TrimSuffix(d.Host, ".")) && !a.isLocalAPIServer(d) {
		return false, fmt.Errorf("it is a loopback address")
	}
	if err := a.checkNames(d); err != nil {
		return false, err
	}
	if a.isAPIServer(d) {
		return true, nil
	}
	if !a.listed(d) {
		return false, errNotListed
	}
	return matches(a.Allow, d), nil
}

func (a *Authorizer) isLocalAPIServer(d gateway.Destination) bool {
	return d.Kind == gateway.KindExternal && gateway.SameAddress(d.Host, d.Port, a.LocalAPIServer)
}

// isAPIServer reports whether a destination is the API server, by the name or by the address of the kubeconfig.
func (a *Authorizer) isAPIServer(d gateway.Destination) bool {
	return d.Kind == gateway.KindExternal && (gateway.SameAddress(d.Host, d.Port, a.APIServer) || d.Addr.IsValid() && d.Addr.String() == a.APIServer)
}

// denied returns the refusal of a destination.
func denied(d gateway.Destination, hint, format string, args ...any) error {
	return gateway.Errorf(gateway.ReasonDenied, hint, "%s is denied: %w", d, fmt.Errorf(format, args...))
}
