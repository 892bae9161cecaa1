// SPDX-License-Identifier: Apache-2.0

package connect

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/fairlead-dev/fairlead/pkg/apis/tunnel/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/gateway"
	"github.com/fairlead-dev/fairlead/pkg/gateway/rules"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/destinations"
)

// subresources of "destinations", by kind.
var subresources = map[gateway.Kind]string{
	gateway.KindService: "services", gateway.KindPod: "pods", gateway.KindNode: "nodes", gateway.KindExternal: "addresses",
}

// Destinations is a gateway.NameAuthorizer: it denies local addresses to all, and asks kube-apiserver for the rest.
type Destinations struct {
	addresses rules.Authorizer
	ask       authorizer.Authorizer
}

// NewDestinations returns a Destinations that asks an authorizer.
func NewDestinations(ask authorizer.Authorizer) (*Destinations, error) {
	// The rules of package rules deny addresses outside of the cluster that no list has. Here RBAC is that list.
	all, err := destinations.ParseRules("0.0.0.0/0,::/0")
	if err != nil {
		return nil, err
	}
	return &Destinations{addresses: rules.Authorizer{Allow: all}, ask: ask}, nil
}

// Authorize implements gateway.Authorizer.
func (a *Destinations) Authorize(ctx context.Context, client user.Info, d gateway.Destination) error {
	if err := a.addresses.Authorize(ctx, client, d); err != nil {
		return err
	}
	return a.review(ctx, client, d)
}

// AuthorizeName implements gateway.NameAuthorizer, with the rights by which Authorize judges the object. A host outside of
// the cluster is looked up only for who may connect to "addresses" by the name of the host; then its address is judged.
func (a *Destinations) AuthorizeName(ctx context.Context, client user.Info, d gateway.Destination) (sure bool, err error) {
	if d.Kind == "" {
		return false, nil // mayKnow costs requests, and is of use for refusals only
	}
	if err := a.review(ctx, client, d); err != nil {
		return false, err
	}
	return true, nil
}

// mayKnow reports whether a client may connect to all Services and nodes: then it may know which of them has an address.
func (a *Destinations) mayKnow(ctx context.Context, client user.Info) bool {
	for _, kind := range []gateway.Kind{gateway.KindService, gateway.KindNode} {
		if allowed, err := a.allows(ctx, client, gateway.Destination{Kind: kind}, ""); !allowed || err != nil {
			return false
		}
	}
	return true
}

// review asks for the right to a destination.
func (a *Destinations) review(ctx context.Context, client user.Info, d gateway.Destination) error {
	names := namesOf(d)
	for _, name := range names {
		allowed, err := a.allows(ctx, client, d, name)
		switch {
		case allowed:
			return nil
		case err != nil:
			return gateway.Errorf(gateway.ReasonPathDown, "check the connection to the API server", "ask whether %q may connect to %s: %w", client.GetName(), d, err)
		}
	}
	where := "with a ClusterRoleBinding"
	if d.Namespace != "" {
		where = fmt.Sprintf("with a RoleBinding in namespace %q", d.Namespace)
	}
	return gateway.Errorf(gateway.ReasonDenied, fmt.Sprintf("grant the verb %s on %s/%s.%s, name %q, %s", v1alpha1.VerbConnect, v1alpha1.ResourceDestinations, subresources[d.Kind], v1alpha1.GroupName, names[0], where),
		"%s is denied: the API server does not let %q connect to this %s", d, client.GetName(), d.Kind)
}

// allows asks for the right to one name. The empty one stands for all.
func (a *Destinations) allows(ctx context.Context, client user.Info, d gateway.Destination, name string) (bool, error) {
	decision, _, err := a.ask.Authorize(ctx, authorizer.AttributesRecord{
		User: client, Verb: v1alpha1.VerbConnect, Namespace: d.Namespace, APIGroup: v1alpha1.GroupName, APIVersion: v1alpha1.SchemeGroupVersion.Version,
		Resource: v1alpha1.ResourceDestinations, Subresource: subresources[d.Kind], Name: name, ResourceRequest: true,
	})
	return decision == authorizer.DecisionAllow, err
}

// namesOf returns the names of a destination, as rules have them: with its port, or without for all ports. The port of a
// Service is the Service's own. A host without an address has its own name, and a Pod that is not known yet has none.
func namesOf(d gateway.Destination) []string {
	name, port := d.Name, d.Port
	if d.Kind == gateway.KindExternal {
		name = strings.TrimSuffix(d.Host, ".")
	}
	if d.Addr.IsValid() && d.Kind != gateway.KindService {
		port = d.Addr.Port()
		if d.Kind == gateway.KindExternal {
			name = d.Addr.Addr().String()
		}
	}
	if name == "" {
		return []string{""}
	}
	return []string{net.JoinHostPort(name, strconv.Itoa(int(port))), name}
}
