// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"context"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/destinations"
)

// AuthorizeName implements gateway.NameAuthorizer. A name outside of the cluster is looked up only if
// rules allow it, or allow addresses that it may have.
func (a *Authorizer) AuthorizeName(ctx context.Context, client user.Info, d gateway.Destination) (sure bool, err error) {
	if d.Kind == "" {
		return a.Review == nil && a.File == nil && len(a.Only) == 0, nil
	}
	if err := a.checkNames(d); err != nil {
		return false, denied(d, "", "%w", err)
	}
	matched, sure := false, true
	if a.File != nil {
		if matched, sure, err = a.File.checkName(client, d); err != nil {
			return false, err
		}
	}
	if isAPIServerService(d) { // the API server authenticates its clients itself
		return true, nil
	}
	listed, err := a.mayBeListed(d)
	if err != nil {
		return false, err
	}
	sure, err = a.judgeName(ctx, client, d, matched, sure)
	return sure && listed, err
}

// mayBeListed returns an error if --only has no destination of this name, and no addresses that it may have. listed tells
// whether it has the name.
func (a *Authorizer) mayBeListed(d gateway.Destination) (listed bool, err error) {
	if a.isAPIServer(d) || a.listed(d) {
		return true, nil
	}
	if !destinations.HasAddresses(a.Only) {
		return false, denied(d, "", "%w", errNotListed)
	}
	return false, nil
}

// judgeName judges a name by what is more than lists. matched tells whether a rule of the file allows it, whatever its
// address is if the rule is sure.
func (a *Authorizer) judgeName(ctx context.Context, client user.Info, d gateway.Destination, matched, sure bool) (bool, error) {
	switch {
	case d.Kind == gateway.KindExternal:
		return a.leaves(d, matched, sure)
	case a.File != nil && !matched:
		return false, noRule(a.File, client, d)
	case a.Review != nil:
		return sure, a.Review.check(ctx, client, d)
	}
	return sure, nil
}

// leaves judges a name outside of the cluster. matched tells whether a rule of the file allows it,
// whatever its address is if the rule is sure.
func (a *Authorizer) leaves(d gateway.Destination, matched, sure bool) (bool, error) {
	if a.isAPIServer(d) || matches(a.Allow, d) || matched && sure {
		return true, nil
	}
	byAddress := matched || destinations.AnyAddress(a.Allow, int(d.Port))
	if byAddress && (a.Unresolved == nil || !a.Unresolved(d.Host, d.Port)) {
		return false, nil
	}
	return false, outside(d)
}

func isAPIServerService(d gateway.Destination) bool {
	return isService(d, gateway.APIServerService.Namespace, gateway.APIServerService.Name)
}

func isService(d gateway.Destination, namespace, name string) bool {
	return d.Kind == gateway.KindService && d.Namespace == namespace && d.Name == name
}

// alsoServices returns the other Services that a destination stands for: that by which it was found, those
// that lead to the same Pod, and that of the API server.
func (a *Authorizer) alsoServices(ctx context.Context, client user.Info, d gateway.Destination) (also []gateway.Destination, err error) {
	if also, err = a.sameServices(ctx, d); err != nil {
		return nil, err
	}
	for _, s := range []types.NamespacedName{d.Service, d.Through} {
		if s.Name != "" && !isService(d, s.Namespace, s.Name) {
			also = append(also, asService(d, s.Namespace, s.Name, d.Port))
		}
	}
	server := asService(d, gateway.APIServerService.Namespace, gateway.APIServerService.Name, gateway.APIServerServicePort)
	here := server
	here.Port = d.Port
	is := d.Service == gateway.APIServerService || a.isAPIServer(d)
	if !is && a.APIServers != nil && a.denies(client, server, here) {
		all, err := a.APIServers(ctx)
		if err != nil {
			return nil, err
		}
		is = slices.Contains(all, d.Addr)
	}
	if is {
		also = append(also, server, here)
	}
	return also, nil
}

// sameServices returns the other Services that lead to the Pod of a destination, if rules may deny Services. The Service that
// the client has asked for is judged by the port that the client has sent, and not by others.
func (a *Authorizer) sameServices(ctx context.Context, d gateway.Destination) ([]gateway.Destination, error) {
	isPod := d.Kind == gateway.KindPod || d.Kind == gateway.KindService
	if !isPod || a.ServicesOf == nil || !destinations.HasNames(a.Deny) && (a.File == nil || !a.File.deniesServices()) {
		return nil, nil
	}
	all, err := a.ServicesOf(ctx, d)
	return slices.DeleteFunc(all, func(o gateway.Destination) bool { return isService(d, o.Namespace, o.Name) }), err
}

// denies reports whether a rule denies one of these, whatever its address is.
func (a *Authorizer) denies(client user.Info, services ...gateway.Destination) bool {
	return slices.ContainsFunc(services, func(d gateway.Destination) bool {
		return a.checkNames(d) != nil || a.File != nil && a.File.denies(client, d) != nil
	})
}

// asService returns a destination as one of a Service.
func asService(d gateway.Destination, namespace, name string, port uint16) gateway.Destination {
	d.Kind, d.Namespace, d.Name, d.Port = gateway.KindService, namespace, name, port
	return d
}

// deniesPod returns the rule that denies the Pod behind a Service by the Pod's name, if there is one. Rules without names are
// about the way that a client takes: they may leave Pods to those who come through a Service.
func (l *List) deniesPod(client user.Info, d gateway.Destination) *Rule {
	if d.Kind != gateway.KindService || d.Pod.Name == "" {
		return nil
	}
	d.Kind, d.Namespace, d.Name, d.Port = gateway.KindPod, d.Pod.Namespace, d.Pod.Name, d.Addr.Port()
	for i := range l.Deny {
		if r := &l.Deny[i]; len(r.Names) > 0 && r.matches(client, d, true) {
			return r
		}
	}
	return nil
}

// matchesName compares the names of a rule with that of an object, or with the host of a destination outside of the cluster.
func (r *Rule) matchesName(d gateway.Destination) bool {
	if d.Kind != gateway.KindExternal {
		return matchesOne(r.Names, d.Name)
	}
	host := strings.ToLower(strings.TrimSuffix(d.Host, "."))
	return slices.ContainsFunc(r.Names, func(name string) bool {
		return matchesOne([]string{strings.ToLower(strings.TrimSuffix(name, "."))}, host)
	})
}

// hasNamespace reports whether one of the rule's kinds may be in one of its namespaces. Nodes and hosts outside of the cluster
// are in none.
func (r *Rule) hasNamespace() bool {
	inSome := len(r.Kinds) == 0 || slices.Contains(r.Kinds, gateway.KindService) || slices.Contains(r.Kinds, gateway.KindPod)
	return inSome || len(r.Namespaces) == 0 || matchesOne(r.Namespaces, "")
}
