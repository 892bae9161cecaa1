// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
)

// TestDenyBySpelling: a rule of --deny for one spelling of a Service holds for all of them, for its cluster
// IP, and for its Pods' names; not for other Services, and not for a host outside of the cluster.
func TestDenyBySpelling(t *testing.T) {
	spellings := []string{"db.prod", "db.prod.svc", "db.prod.svc.example.inner", "DB.Prod.Svc.Example.Inner."}
	service := func(host, name, namespace string) gateway.Destination {
		d := destination(gateway.KindService, host, "10.0.0.1", 5432)
		d.Name, d.Namespace = name, namespace
		return d
	}
	for _, rule := range append([]string{"db", "*.prod.svc", "db.prod:5432"}, spellings...) {
		a := &Authorizer{Deny: parse(t, rule), Namespace: "prod", ClusterDomain: "Example.Inner."}
		for _, host := range append([]string{"db"}, spellings...) {
			if a.CheckHost(host, 5432) == nil {
				t.Errorf("--deny %s: the host %s is allowed", rule, host)
			}
			if a.Authorize(t.Context(), alice, service(host, "db", "prod")) == nil {
				t.Errorf("--deny %s: the Service as %s is allowed", rule, host)
			}
			if _, err := a.AuthorizeName(t.Context(), alice, gateway.Destination{Kind: gateway.KindService, Host: host, Port: 5432, Namespace: "prod", Name: "db"}); err == nil {
				t.Errorf("--deny %s: the name %s may be looked up", rule, host)
			}
		}
		for _, host := range []string{"10.0.0.1", "db-0.db.prod.svc"} {
			if a.Authorize(t.Context(), alice, service(host, "db", "prod")) == nil {
				t.Errorf("--deny %s: the Service as %s is allowed", rule, host)
			}
		}
		for _, host := range []string{"db.test", "db.prod.svc.example.org", "10.0.0.1"} {
			if err := a.Authorize(t.Context(), alice, service(host, "db", "test")); err != nil {
				t.Errorf("--deny %s: another Service as %s: %v", rule, host, err)
			}
		}
	}
	a := &Authorizer{Deny: parse(t, "node-1,db.prod:22")}
	if a.Authorize(t.Context(), alice, destination(gateway.KindNode, "192.168.0.1", "192.168.0.1", 10250)) == nil {
		t.Error("a node whose name is denied is allowed by its address")
	}
	if err := a.Authorize(t.Context(), alice, service("db.prod.svc", "db", "prod")); err != nil {
		t.Errorf("another port: %v", err)
	}
	if a.CheckHost("db.prod.svc.cluster.local", 22) == nil {
		t.Error("the default domain is not known")
	}
	// What a Service leads to is denied with it.
	behind := destination(gateway.KindNode, "10.0.0.9", "192.168.0.2", 22)
	behind.Service = types.NamespacedName{Namespace: "prod", Name: "db"}
	if a.Authorize(t.Context(), alice, behind) == nil {
		t.Error("the node behind a Service that is denied is allowed")
	}
}

// TestRulesForAPIServer: who may not reach Service kubernetes does not reach the API server at any of its
// addresses. Other clients do, without a rule, and other ports of its nodes are what they are.
func TestRulesForAPIServer(t *testing.T) {
	server := destination(gateway.KindExternal, "10.0.0.1", "10.0.0.1", 443)
	named := destination(gateway.KindExternal, "api.example", "10.0.0.1", 443)
	node := destination(gateway.KindNode, "192.168.0.1", "192.168.0.1", 6443)
	kubelet := destination(gateway.KindNode, "192.168.0.1", "192.168.0.1", 10250)
	asked := 0
	addresses := func(context.Context) ([]netip.AddrPort, error) {
		asked++
		return []netip.AddrPort{netip.MustParseAddrPort("192.168.0.1:6443")}, nil
	}
	for _, c := range []struct {
		rules      string
		deny       string
		ok, always bool // of the client alice, and of bob
	}{
		{"allow: [{}]", "", true, true},
		{"allow: [{}]\ndeny: [{namespaces: [default], names: [kubernetes]}]", "", false, false},
		{"allow: [{}]\ndeny: [{kinds: [Service], names: [kube*], ports: ['443']}]", "", false, false},
		{"allow: [{}]\ndeny: [{users: [alice], names: [kubernetes]}]", "", false, true},
		{"allow: [{}]\ndeny: [{names: [kubernetes], ports: ['80']}]", "", true, true},
		{"allow: [{}]\ndeny: [{namespaces: [other], names: [kubernetes]}]", "", true, true},
		{"allow: [{}]", "kubernetes.default.svc", false, false},
		{"allow: [{}]", "kubernetes.default:443", false, false},
	} {
		a := &Authorizer{APIServer: "10.0.0.1:443", APIServers: addresses, File: open(t, c.rules), Deny: parse(t, c.deny)}
		for _, d := range []gateway.Destination{server, named, node} {
			for client, ok := range map[string]bool{"alice": c.ok, "bob": c.always} {
				if err := a.Authorize(t.Context(), &user.DefaultInfo{Name: client}, d); (err == nil) != ok {
					t.Errorf("%q, --deny %q: %s to %s %s: %v, want allowed %v", c.rules, c.deny, client, d.Kind, d.Host, err, ok)
				}
			}
		}
		if err := a.Authorize(t.Context(), alice, kubelet); err != nil {
			t.Errorf("%q: another port of the node: %v", c.rules, err)
		}
	}
	a := &Authorizer{APIServer: "10.0.0.1:443", APIServers: addresses, File: open(t, "allow: [{}]\ndeny: [{names: [db]}]")}
	if asked = 0; a.Authorize(t.Context(), alice, node) != nil || asked != 0 {
		t.Errorf("the addresses are asked for %d times without a rule about them", asked)
	}
	a.File = open(t, "allow: [{}]\ndeny: [{names: [kubernetes]}]")
	a.APIServers = func(context.Context) ([]netip.AddrPort, error) { return nil, errors.New("down") }
	if a.Authorize(t.Context(), alice, node) == nil {
		t.Error("a node is allowed that may be the API server")
	}
	a = &Authorizer{APIServer: "api.inner:6443", Unresolved: anyName, File: open(t, "deny: [{names: [kubernetes]}]")}
	if a.Authorize(t.Context(), alice, gateway.Destination{Kind: gateway.KindExternal, Host: "API.inner.", Port: 6443}) == nil {
		t.Error("the API server is allowed by its name")
	}
	a.File = open(t, "deny: [{addresses: [192.0.2.0/24]}]")
	if err := a.Authorize(t.Context(), alice, gateway.Destination{Kind: gateway.KindExternal, Host: "api.inner", Port: 6443}); err != nil {
		t.Errorf("the API server is denied by its name for an address that it need not have: %v", err)
	}
}

// TestServicesOfPods: the Services of a Pod are asked for only if a rule may deny Services, and a Pod of which they cannot
// be known is denied then, also behind a Service.
func TestServicesOfPods(t *testing.T) {
	pod := destination(gateway.KindPod, "10.1.0.5", "10.1.0.5", 5432)
	unknown := errors.New("forbidden")
	for _, c := range []struct {
		what  string
		a     Authorizer
		asked bool
	}{
		{"no rules", Authorizer{}, false},
		{"addresses", Authorizer{Deny: parse(t, "192.0.2.0/24,:22")}, false},
		{"names", Authorizer{Deny: parse(t, "db.prod")}, true},
		{"rules without denials", Authorizer{File: open(t, "allow: [{}]")}, false},
		{"rules for nodes", Authorizer{File: open(t, "allow: [{}]\ndeny: [{kinds: [Node]}]")}, false},
		{"rules for names", Authorizer{File: open(t, "allow: [{}]\ndeny: [{names: [db]}]")}, true},
	} {
		asked := false
		c.a.ServicesOf = func(context.Context, gateway.Destination) ([]gateway.Destination, error) {
			asked = true
			return nil, unknown
		}
		if err := c.a.Authorize(t.Context(), alice, pod); asked != c.asked || errors.Is(err, unknown) != c.asked {
			t.Errorf("%s: asked %v, %v", c.what, asked, err)
		}
		asked = false
		service := destination(gateway.KindService, "web", "10.1.0.5", 80)
		if err := c.a.Authorize(t.Context(), alice, service); asked != c.asked || errors.Is(err, unknown) != c.asked {
			t.Errorf("%s: a Service: asked %v, %v", c.what, asked, err)
		}
		asked = false
		node := destination(gateway.KindNode, "node-1", "192.168.0.1", 22)
		if err := c.a.Authorize(t.Context(), alice, node); asked || errors.Is(err, unknown) {
			t.Errorf("%s: a node: asked %v, %v", c.what, asked, err)
		}
	}
}

// TestOtherServicesOfPods: a Service is denied with another one that leads to the same port of a Pod, under the name and the
// port of that one. A rule for another port of the Service itself does not deny it, nor does one for a port of the
// other that the client has sent.
func TestOtherServicesOfPods(t *testing.T) {
	web := destination(gateway.KindService, "web.default", "10.1.0.5", 80)
	also := func(name string, port uint16) gateway.Destination {
		d := destination(gateway.KindService, name+".default", "10.1.0.5", port)
		d.Name = name
		return d
	}
	for list, ok := range map[string]bool{
		"db.default": false, "db.default:443": false, "db.default:80": true, "web.default:443": true, "web.default:80": false, "web.default": false, "web.default:8443": true,
	} {
		a := &Authorizer{Deny: parse(t, list), ServicesOf: func(context.Context, gateway.Destination) ([]gateway.Destination, error) {
			return []gateway.Destination{also("web", 80), also("web", 443), also("db", 443)}, nil
		}}
		if err := a.Authorize(t.Context(), alice, web); (err == nil) != ok {
			t.Errorf("--deny %s: %v, want allowed %v", list, err, ok)
		}
	}
	// A load balancer's name that leads to the cluster IP of another Service.
	balanced := web
	balanced.Service = types.NamespacedName{Namespace: "default", Name: "db"}
	a := &Authorizer{Deny: parse(t, "db.default")}
	if a.Authorize(t.Context(), alice, balanced) == nil {
		t.Error("a Service is allowed by the name of another one that is denied")
	}
}

// TestOnly: a list of all destinations leaves the API server and what it names, by address, by any spelling of
// a name, and by the address that the client sent. It allows nothing by itself.
func TestOnly(t *testing.T) {
	a := &Authorizer{APIServer: "10.0.0.1:443", Only: parse(t, "10.1.0.0/16:80,web.default,10.9.0.1,192.0.2.0/24,*.example.org"), Allow: parse(t, "192.0.2.1,*.example.org,198.51.100.1")}
	for _, c := range []struct {
		d  gateway.Destination
		ok bool
	}{
		{destination(gateway.KindPod, "10.1.0.1", "10.1.0.1", 80), true},
		{destination(gateway.KindPod, "10.1.0.1", "10.1.0.1", 81), false},
		{destination(gateway.KindService, "web.default.svc.cluster.local.", "10.2.0.1", 81), true},
		{destination(gateway.KindService, "10.9.0.1", "10.2.0.1", 81), true},
		{destination(gateway.KindNode, "node-1", "192.168.0.1", 10250), false},
		{destination(gateway.KindExternal, "10.0.0.1", "10.0.0.1", 443), true},
		{destination(gateway.KindExternal, "192.0.2.1", "192.0.2.1", 443), true},
		{destination(gateway.KindExternal, "192.0.2.2", "192.0.2.2", 443), false},
		{destination(gateway.KindExternal, "a.example.org", "203.0.113.1", 443), true},
		{destination(gateway.KindExternal, "198.51.100.1", "198.51.100.1", 443), false},
	} {
		if err := a.Authorize(t.Context(), alice, c.d); (err == nil) != c.ok {
			t.Errorf("%s %s at %s: %v, want allowed %v", c.d.Kind, c.d.Host, c.d.Addr, err, c.ok)
		}
	}
}

// TestAuthorizeName: before anything is looked up, a name is allowed if rules allow it by its name, or may allow
// it by the address that it has. Only the first is sure.
func TestAuthorizeName(t *testing.T) {
	client := fake.NewClientset()
	client.PrependReactor("create", "subjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		r := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview).DeepCopy()
		r.Status.Allowed = r.Spec.ResourceAttributes.Name == "web"
		return true, r, nil
	})
	review := NewReview(client.AuthorizationV1().SubjectAccessReviews())
	name := func(kind gateway.Kind, host, namespace, name string) gateway.Destination {
		return gateway.Destination{Kind: kind, Host: host, Port: 443, Namespace: namespace, Name: name}
	}
	web, db := name(gateway.KindService, "web.shop", "shop", "web"), name(gateway.KindService, "db.shop", "shop", "db")
	pods, out := name(gateway.KindPod, "db.shop", "shop", ""), name(gateway.KindExternal, "www.example.org", "", "")
	server := name(gateway.KindService, "kubernetes.default", "default", "kubernetes")
	for _, c := range []struct {
		what     string
		a        Authorizer
		d        gateway.Destination
		ok, sure bool
	}{
		{"nothing to judge by", Authorizer{}, db, true, true},
		{"review", Authorizer{Review: review}, web, true, true},
		{"review of another", Authorizer{Review: review}, db, false, false},
		{"review of the API server", Authorizer{Review: review}, server, true, true},
		{"denied API server", Authorizer{Review: review, File: open(t, "deny: [{names: [kubernetes]}]")}, server, false, false},
		{"rule", Authorizer{File: open(t, "allow: [{names: [web]}]")}, web, true, true},
		{"rule for another", Authorizer{File: open(t, "allow: [{names: [web]}]")}, db, false, false},
		{"rule for another port", Authorizer{File: open(t, "allow: [{names: [db], ports: ['80']}]")}, db, false, false},
		{"rule with an address", Authorizer{File: open(t, "allow: [{names: [db], addresses: [10.0.0.0/8]}]")}, db, true, false},
		{"rule and review", Authorizer{File: open(t, "allow: [{}]"), Review: review}, db, false, false},
		{"denial", Authorizer{File: open(t, "allow: [{}]\ndeny: [{names: [web]}]")}, web, false, false},
		{"denial of an address", Authorizer{File: open(t, "allow: [{}]\ndeny: [{names: [web], addresses: [10.0.0.0/8]}]")}, web, true, true},
		{"Pods by name", Authorizer{File: open(t, "allow: [{kinds: [Pod], names: [db-0]}]")}, pods, true, false},
		{"all Pods", Authorizer{File: open(t, "allow: [{kinds: [Pod], namespaces: [shop]}]")}, pods, true, true},
		{"denial of one Pod", Authorizer{File: open(t, "allow: [{}]\ndeny: [{names: [db-0]}]")}, pods, true, true},
		{"list of names", Authorizer{Only: parse(t, "web.shop.svc,10.9.0.0/16")}, web, true, true},
		{"list of other names", Authorizer{Only: parse(t, "web.shop")}, db, false, false},
		{"list of other names and of Pods", Authorizer{Only: parse(t, "web.shop")}, pods, false, false},
		{"list of other names and of nodes", Authorizer{Only: parse(t, "web.shop")}, name(gateway.KindNode, "db", "", "db"), false, false},
		{"list of a node", Authorizer{Only: parse(t, "db")}, name(gateway.KindNode, "db", "", "db"), true, true},
		{"list of the name at another port", Authorizer{Only: parse(t, "db.shop:80")}, db, false, false},
		// The address may have another port.
		{"list with addresses", Authorizer{Only: parse(t, "web.shop,10.0.0.0/8:80")}, db, true, false},
		{"list of ports", Authorizer{Only: parse(t, ":80")}, db, true, false},
		{"list without the API server", Authorizer{Only: parse(t, "web.shop")}, server, true, true},
		{"list without the API server's name", Authorizer{Only: parse(t, "web.shop"), APIServer: "www.example.org:443"}, out, true, true},
		{"list and review", Authorizer{Only: parse(t, "web.shop,db.shop"), Review: review}, db, false, false},
		{"list of others and review", Authorizer{Only: parse(t, "db.shop"), Review: review}, web, false, false},
		{"list with addresses and review", Authorizer{Only: parse(t, "10.0.0.0/8"), Review: review}, web, true, false},
		{"outside and not listed", Authorizer{Only: parse(t, "web.shop"), Allow: parse(t, "*.example.org")}, out, false, false},
		{"outside and listed by address", Authorizer{Only: parse(t, "192.0.2.0/24"), Allow: parse(t, "*.example.org")}, out, true, false},
		{"an owner to be found", Authorizer{}, name("", "10.0.0.1", "", ""), true, true},
		{"an owner to be found, with a review", Authorizer{Review: review}, name("", "10.0.0.1", "", ""), true, false},
		{"an owner to be found, with rules", Authorizer{File: open(t, "allow: [{}]")}, name("", "10.0.0.1", "", ""), true, false},
		{"an owner to be found, with a list", Authorizer{Only: parse(t, "10.0.0.1")}, name("", "10.0.0.1", "", ""), true, false},
		{"outside", Authorizer{}, out, false, false},
		{"outside and the API server", Authorizer{APIServer: "10.0.0.1:443"}, out, false, false},
		{"outside by name", Authorizer{Allow: parse(t, "*.example.org")}, out, true, true},
		{"outside by another name", Authorizer{Allow: parse(t, "other.example.org")}, out, false, false},
		{"outside by address", Authorizer{Allow: parse(t, "192.0.2.0/24")}, out, true, false},
		{"outside by address and another port", Authorizer{Allow: parse(t, "192.0.2.0/24:80")}, out, false, false},
		{"outside by address, where the path resolves", Authorizer{Allow: parse(t, "192.0.2.0/24"), Unresolved: anyName}, out, false, false},
		{"outside by a rule", Authorizer{File: open(t, "allow: [{kinds: [External]}]")}, out, true, true},
		{"outside by a rule with an address", Authorizer{File: open(t, "allow: [{addresses: [192.0.2.0/24]}]")}, out, true, false},
		{"outside by a rule with its name", Authorizer{File: open(t, "allow: [{kinds: [External], names: ['*.example.org']}]")}, out, true, true},
		{"outside by a rule with another name", Authorizer{File: open(t, "allow: [{kinds: [External], names: ['*.example.com']}]")}, out, false, false},
		{"outside and denied by its name", Authorizer{File: open(t, "allow: [{kinds: [External]}]\ndeny: [{kinds: [External], names: [www.example.org]}]")}, out, false, false},
		{"outside by a rule for objects", Authorizer{File: open(t, "allow: [{}]")}, out, false, false},
		{"outside by a rule for others", Authorizer{File: open(t, "allow: [{kinds: [External], users: [bob]}]")}, out, false, false},
	} {
		sure, err := c.a.AuthorizeName(t.Context(), alice, c.d)
		if (err == nil) != c.ok || err == nil && sure != c.sure || err != nil && (gateway.ReasonOf(err) != gateway.ReasonDenied || !strings.Contains(err.Error(), c.d.Host)) {
			t.Errorf("%s: %v, sure %v; want allowed %v, sure %v", c.what, err, sure, c.ok, c.sure)
		}
	}
}
