// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/destinations"
)

var alice = &user.DefaultInfo{Name: "alice", Groups: []string{"dev", user.AllAuthenticated}}

func destination(kind gateway.Kind, host, addr string, port uint16) gateway.Destination {
	d := gateway.Destination{Host: host, Port: port, Kind: kind, Addr: netip.AddrPortFrom(netip.MustParseAddr(addr), port)}
	if kind == gateway.KindService || kind == gateway.KindPod {
		d.Namespace, d.Name = "default", "web"
	}
	if kind == gateway.KindNode {
		d.Name = "node-1"
	}
	return d
}

func parse(t *testing.T, list string) []destinations.Rule {
	t.Helper()
	r, err := destinations.ParseRules(list)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestLocalAndMetadataAddressesAreDenied: each form of a loopback, link-local, unspecified or
// metadata address is denied after resolution, whatever kind the destination seems to have,
// and although --allow names everything.
func TestLocalAndMetadataAddressesAreDenied(t *testing.T) {
	a := &Authorizer{Allow: parse(t, "0.0.0.0/0,::/0,*")}
	for _, addr := range []string{
		"127.0.0.1", "127.1.2.3", "::1", "0.0.0.0", "::", "169.254.169.254", "169.254.0.1", "fe80::1", "fe80::1%eth0",
		"::ffff:127.0.0.1", "::ffff:169.254.169.254", "::ffff:0.0.0.0", "64:ff9b::169.254.169.254", "64:ff9b::127.0.0.1",
		"64:ff9b:1::a9fe:a9fe", "2002:a9fe:a9fe::1", "2002:7f00:1::", "::127.0.0.1", "::ffff:0:169.254.169.254",
		"fd00:ec2::254", "100.100.100.200", "168.63.129.16", "192.0.0.192", "fd20:ce::254",
	} {
		for _, kind := range []gateway.Kind{gateway.KindService, gateway.KindPod, gateway.KindNode, gateway.KindExternal} {
			for _, host := range []string{addr, "innocent.example"} {
				err := a.Authorize(t.Context(), alice, destination(kind, host, addr, 80))
				if gateway.ReasonOf(err) != gateway.ReasonDenied {
					t.Errorf("%s %s at %s: %v", kind, host, addr, err)
				}
			}
		}
	}
	// An address in the request is judged, too, wherever a resolver sends it.
	if err := a.Authorize(t.Context(), alice, destination(gateway.KindService, "169.254.169.254", "10.0.0.1", 80)); err == nil {
		t.Error("a denied literal is allowed")
	}
	local := &Authorizer{AllowLocal: true}
	if err := local.Authorize(t.Context(), alice, destination(gateway.KindService, "web.default", "127.0.0.1", 80)); err != nil {
		t.Error(err)
	}
}

// TestLocalAPIServer: of the addresses that are always denied, the API server on loopback is
// allowed by its own address and port alone, and not against a rule.
func TestLocalAPIServer(t *testing.T) {
	named := gateway.Destination{Host: "localhost", Port: 6443, Kind: gateway.KindExternal}
	for _, c := range []struct {
		server string
		to     gateway.Destination
		ok     bool
	}{
		{"127.0.0.1:6443", destination(gateway.KindExternal, "127.0.0.1", "127.0.0.1", 6443), true},
		{"127.0.0.1:6443", destination(gateway.KindExternal, "127.0.0.1", "127.0.0.1", 6444), false},
		{"127.0.0.1:6443", destination(gateway.KindExternal, "127.0.0.2", "127.0.0.2", 6443), false},
		{"127.0.0.1:6443", destination(gateway.KindExternal, "localhost.", "127.0.0.1", 6443), false},
		{"127.0.0.1:6443", destination(gateway.KindPod, "127.0.0.1", "127.0.0.1", 6443), false},
		{"", destination(gateway.KindExternal, "127.0.0.1", "127.0.0.1", 6443), false},
		{"localhost:6443", named, true},
		{"", named, false},
	} {
		a := &Authorizer{Allow: parse(t, "127.0.0.1,localhost"), LocalAPIServer: c.server, Unresolved: func(string, uint16) bool { return true }}
		if err := a.Authorize(t.Context(), alice, c.to); (err == nil) != c.ok {
			t.Errorf("API server %q, to %s at %s: %v, want allowed %v", c.server, c.to.Host, c.to.Addr, err, c.ok)
		}
		if a.Deny = parse(t, "127.0.0.1,localhost:6443"); c.ok && a.Authorize(t.Context(), alice, c.to) == nil {
			t.Errorf("%s is allowed against --deny", c.to.Host)
		}
	}
}

// TestKinds: objects of the cluster are allowed by default, addresses outside of it and
// destinations without an address are not.
func TestKinds(t *testing.T) {
	for _, c := range []struct {
		name string
		a    Authorizer
		d    gateway.Destination
		ok   bool
	}{
		{"Service", Authorizer{}, destination(gateway.KindService, "web", "10.0.0.1", 80), true},
		{"Pod", Authorizer{}, destination(gateway.KindPod, "10.0.0.1", "10.0.0.1", 80), true},
		{"node", Authorizer{}, destination(gateway.KindNode, "node-1", "192.168.0.1", 10250), true},
		{"outside", Authorizer{}, destination(gateway.KindExternal, "example.com", "192.0.2.1", 443), false},
		{"outside, allowed by address", Authorizer{Allow: parse(t, "192.0.2.0/24:443")}, destination(gateway.KindExternal, "example.com", "192.0.2.1", 443), true},
		{"outside, allowed by name", Authorizer{Allow: parse(t, "*.com")}, destination(gateway.KindExternal, "example.com", "192.0.2.1", 443), true},
		{"outside, another port", Authorizer{Allow: parse(t, "192.0.2.0/24:443")}, destination(gateway.KindExternal, "example.com", "192.0.2.1", 80), false},
		{"outside, another address", Authorizer{Allow: parse(t, "192.0.2.0/24")}, destination(gateway.KindExternal, "x", "198.51.100.1", 80), false},
		{"outside, translated", Authorizer{Allow: parse(t, "192.0.2.0/24")}, destination(gateway.KindExternal, "x", "64:ff9b::192.0.2.1", 80), false},
		{"denied address of a Pod", Authorizer{Deny: parse(t, "10.0.0.0/8")}, destination(gateway.KindPod, "web", "10.0.0.1", 80), false},
		{"denied name of a Service", Authorizer{Deny: parse(t, "db.default")}, destination(gateway.KindService, "DB.default.", "10.0.0.1", 80), false},
		{"denial wins", Authorizer{Allow: parse(t, "192.0.2.0/24"), Deny: parse(t, "192.0.2.9")}, destination(gateway.KindExternal, "x", "192.0.2.9", 80), false},
		{"name that the path resolves", Authorizer{Allow: parse(t, "api.inner:6443"), Unresolved: anyName}, named("api.inner", 6443), true},
		{"the same without a rule", Authorizer{Unresolved: anyName}, named("api.inner", 6443), false},
		{"the same at another port", Authorizer{Allow: parse(t, "api.inner:6443"), Unresolved: anyName}, named("api.inner", 22), false},
		{"the same, denied", Authorizer{Allow: parse(t, "*.inner"), Deny: parse(t, "api.inner"), Unresolved: anyName}, named("api.inner", 6443), false},
		{"name that the path does not resolve", Authorizer{Allow: parse(t, "api.inner:6443")}, named("api.inner", 6443), false},
		{"Pod without an address", Authorizer{Allow: parse(t, "*"), Unresolved: anyName}, gateway.Destination{Kind: gateway.KindPod, Host: "web", Port: 80, Name: "web"}, false},
		{"no address", Authorizer{}, gateway.Destination{Kind: gateway.KindPod, Host: "web", Port: 80, Name: "web"}, false},
	} {
		err := c.a.Authorize(t.Context(), alice, c.d)
		if (err == nil) != c.ok || err != nil && gateway.ReasonOf(err) != gateway.ReasonDenied {
			t.Errorf("%s: %v, want allowed %v", c.name, err, c.ok)
		}
	}
}

func anyName(string, uint16) bool { return true }

// named is a destination outside of the cluster, as the resolver gives it for a name.
func named(host string, port uint16) gateway.Destination {
	return gateway.Destination{Kind: gateway.KindExternal, Host: host, Port: port}
}

func write(t *testing.T, path, rules string) {
	t.Helper()
	text := "apiVersion: fairlead.dev/v1alpha1\nkind: GatewayRules\n" + rules
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, rules string) *File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, path, rules)
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestFile: a rule matches by each of its fields, alternatives within a field are enough,
// a denial wins, and what no rule allows is denied by the file's name.
func TestFile(t *testing.T) {
	web := destination(gateway.KindService, "web.default", "10.0.0.1", 80)
	node := destination(gateway.KindNode, "node-1", "192.168.0.1", 10250)
	outside := destination(gateway.KindExternal, "192.0.2.1", "192.0.2.1", 443)
	evil := destination(gateway.KindExternal, "A.Evil.example.", "192.0.2.1", 443)
	for _, c := range []struct {
		name, rules string
		d           gateway.Destination
		ok          bool
	}{
		{"empty file", "", web, false},
		{"empty rule", "allow: [{}]", web, true},
		{"empty rule and an address outside", "allow: [{}]", outside, false},
		{"user", "allow: [{users: [bob, alice]}]", web, true},
		{"other user", "allow: [{users: [bob]}]", web, false},
		{"group", "allow: [{users: [bob], groups: [dev]}]", web, true},
		{"pattern of groups", "allow: [{groups: ['d*']}]", web, true},
		{"pattern across a slash and a colon", "allow: [{groups: ['system:*']}]", web, true},
		{"kind", "allow: [{kinds: [Service]}]", web, true},
		{"other kind", "allow: [{kinds: [Pod, Node]}]", web, false},
		{"namespace and name", "allow: [{namespaces: ['def*'], names: [web]}]", web, true},
		{"other namespace", "allow: [{namespaces: [other]}]", web, false},
		{"other name", "allow: [{names: ['we']}]", web, false},
		{"namespace of a node", "allow: [{namespaces: [default]}]", node, false},
		{"port", "allow: [{ports: ['443', 80-90]}]", web, true},
		{"other port", "allow: [{ports: [81-90]}]", web, false},
		{"node", "allow: [{kinds: [Node], ports: ['10250']}]", node, true},
		{"address", "allow: [{addresses: [10.0.0.0/8]}]", web, true},
		{"other address", "allow: [{addresses: [10.1.0.0/16]}]", web, false},
		{"external kind", "allow: [{kinds: [External]}]", outside, true},
		{"external address", "allow: [{addresses: [192.0.2.0/24]}]", outside, true},
		{"external name", "allow: [{kinds: [External], names: ['*.EVIL.example.']}]", evil, true},
		{"other external name", "allow: [{kinds: [External], names: ['*.example.org']}]", evil, false},
		{"external name of another user", "allow: [{kinds: [External], names: ['*.evil.example'], users: [bob]}]", evil, false},
		{"external name without the kind", "allow: [{names: ['*.evil.example']}]", evil, false},
		{"all external names", "allow: [{kinds: [External], names: ['*']}]", evil, true},
		{"denial of an external name", "allow: [{kinds: [External]}]\ndeny: [{kinds: [External], names: ['*.evil.example']}]", evil, false},
		{"denial of a name", "allow: [{kinds: [External]}]\ndeny: [{names: [a.evil.example]}]", evil, false},
		{"denial of another external name", "allow: [{kinds: [External]}]\ndeny: [{kinds: [External], names: ['*.example.org', a]}]", evil, true},
		{"all namespaces of a node", "allow: [{kinds: [Node], namespaces: ['*']}]", node, true},
		{"denial", "allow: [{}]\ndeny: [{names: [web]}]", web, false},
		{"denial of others", "allow: [{}]\ndeny: [{users: [bob]}]", web, true},
		{"denial of the cluster IP", "allow: [{}]\ndeny: [{addresses: [10.96.0.0/24]}]", destination(gateway.KindService, "10.96.0.9", "10.0.0.1", 80), false},
		{"denial of the mapped cluster IP", "allow: [{}]\ndeny: [{addresses: [10.96.0.0/24]}]", destination(gateway.KindService, "[::ffff:10.96.0.9]", "10.0.0.1", 80), false},
		{"denial of a cluster IP's port", "allow: [{}]\ndeny: [{addresses: [10.96.0.0/24], ports: ['81']}]", destination(gateway.KindService, "10.96.0.9", "10.0.0.1", 80), true},
		{"denial of another cluster IP", "allow: [{}]\ndeny: [{addresses: [10.97.0.0/24]}]", destination(gateway.KindService, "10.96.0.9", "10.0.0.1", 80), true},
		{"permission of the cluster IP", "allow: [{addresses: [10.96.0.0/24]}]", destination(gateway.KindService, "10.96.0.9", "10.0.0.1", 80), false},
		{"denial of everything", "allow: [{kinds: [External]}]\ndeny: [{}]", outside, false},
		{"denial of a translated address", "allow: [{kinds: [External]}]\ndeny: [{addresses: [192.0.2.0/24]}]", destination(gateway.KindExternal, "x", "64:ff9b::192.0.2.1", 443), false},
	} {
		a := &Authorizer{File: open(t, c.rules)}
		err := a.Authorize(t.Context(), alice, c.d)
		if (err == nil) != c.ok || err != nil && gateway.ReasonOf(err) != gateway.ReasonDenied {
			t.Errorf("%s: %v, want allowed %v", c.name, err, c.ok)
		}
	}
	a := &Authorizer{File: open(t, "deny: [{name: no databases, names: [web]}]")}
	if err := a.Authorize(t.Context(), alice, web); !strings.Contains(err.Error(), "no databases") {
		t.Errorf("the refusal does not name the rule: %v", err)
	}
}

// TestFileRefuses: what would silently match nothing, or everything, is an error.
func TestFileRefuses(t *testing.T) {
	for _, rules := range []string{
		"allow: [{user: [alice]}]", "allow: [{kinds: [Deployment]}]", "allow: [{ports: ['0']}]", "allow: [{ports: [90-80]}]", "allow: [{ports: [http]}]",
		"allow: [{addresses: [10.0.0.0]}]", "allow: [{addresses: [10.0.0.0/33]}]", "allow: [{names: ['']}]", "kind: Other", "permit: []",
		"deny: [{kinds: [Node], namespaces: [prod]}]", "allow: [{kinds: [External, Node], namespaces: ['team-*']}]",
	} {
		path := filepath.Join(t.TempDir(), "rules.yaml")
		write(t, path, rules)
		if _, err := Open(path); err == nil {
			t.Errorf("%q is accepted", rules)
		}
	}
	path := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(path, []byte("allow: [{}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); err == nil {
		t.Error("a file without kind is accepted")
	}
}

// TestFileReloads: a changed file takes effect within two seconds, without a restart, and one that is broken or
// gone leaves the last rules.
func TestFileReloads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web := destination(gateway.KindService, "web.default", "10.0.0.1", 80)
		f := open(t, "allow: [{}]")
		a := &Authorizer{File: f}
		check := func() error {
			time.Sleep(2 * time.Second)
			return a.Authorize(t.Context(), alice, web)
		}
		if err := check(); err != nil {
			t.Fatal(err)
		}
		write(t, f.path, "allow: [{users: [bob]}]")
		if check() == nil {
			t.Error("the new rules do not hold")
		}
		write(t, f.path, "allow: [{kinds: [Nonsense]}]")
		if check() == nil {
			t.Error("a broken file allows everything")
		}
		if err := os.Remove(f.path); err != nil {
			t.Fatal(err)
		}
		if check() == nil {
			t.Error("a removed file allows everything")
		}
		write(t, f.path, "allow: [{users: [alice]}]")
		if err := check(); err != nil {
			t.Error(err)
		}
	})
}

// TestPortBehindService: a Service's port may lead to another port of a node, of a Pod of another namespace or of a host outside
// of the cluster. A permission for the port that the client asked for does not open that one; a denial of either port holds.
func TestPortBehindService(t *testing.T) {
	for _, kind := range []gateway.Kind{gateway.KindNode, gateway.KindPod, gateway.KindExternal} {
		d := destination(kind, "web.default", "192.168.0.1", 22)
		d.Port = 80 // what the client asked for
		for rules, ok := range map[string]bool{
			"allow: [{kinds: [%[1]s], ports: ['80']}]":                                        false,
			"allow: [{kinds: [%[1]s], ports: ['23-80']}]":                                     false,
			"allow: [{kinds: [%[1]s], ports: ['22']}]":                                        true,
			"allow: [{kinds: [%[1]s], ports: [10-21]}, {kinds: [%[1]s], ports: [80, 20-22]}]": true,
			"allow: [{kinds: [%[1]s]}]\ndeny: [{ports: ['80']}]":                              false,
			"allow: [{kinds: [%[1]s]}]\ndeny: [{ports: ['22']}]":                              false,
			"allow: [{kinds: [%[1]s]}]\ndeny: [{ports: [23-79]}]":                             true,
		} {
			rules = fmt.Sprintf(rules, kind)
			a := &Authorizer{File: open(t, rules)}
			if err := a.Authorize(t.Context(), alice, d); (err == nil) != ok {
				t.Errorf("%s: %s at port 22, asked for by port 80: %v, want allowed %v", rules, kind, err, ok)
			}
		}
	}
}

// TestPatterns: "*" stands for any text, also with a "/". All other characters stand for themselves.
func TestPatterns(t *testing.T) {
	for _, c := range []struct {
		pattern, value string
		ok             bool
	}{
		{"team/dev", "team/dev", true},
		{"team/*", "team/dev", true},
		{"team*", "team/dev", true},
		{"*", "corp/team/dev", true},
		{"*/dev", "corp/team/dev", true},
		{"team/dev", "team-dev", false},
		{"team/dev", "team", false},
		{"team/*", "teams/dev", false},
		{"a?b", "a?b", true},
		{"a?b", "axb", false},
		{"a?b", "a/b", false},
		{"[ab]", "[ab]", true},
		{"[ab]", "a", false},
		{`corp\eve`, `corp\eve`, true},
		{`corp\eve`, "corpeve", false},
		{"", "", true},
		{"dev", "devs", false},
	} {
		if ok := matchesOne([]string{c.pattern}, c.value); ok != c.ok {
			t.Errorf("%q matches %q: %v, want %v", c.pattern, c.value, ok, c.ok)
		}
	}
}

// TestReview: the API server is asked for the client's rights to the object of each kind,
// once per some seconds, and its refusal or failure is ours.
func TestReview(t *testing.T) {
	client := fake.NewClientset()
	var asked []authorizationv1.SubjectAccessReviewSpec
	allowed, failure := true, error(nil)
	client.PrependReactor("create", "subjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		r := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview)
		asked = append(asked, r.Spec)
		answer := r.DeepCopy()
		answer.Status.Allowed = allowed
		return true, answer, failure
	})
	a := &Authorizer{Review: NewReview(client.AuthorizationV1().SubjectAccessReviews())}
	var got []string
	for _, d := range []gateway.Destination{
		destination(gateway.KindService, "web", "10.0.0.1", 80), destination(gateway.KindService, "web", "10.0.0.1", 80),
		destination(gateway.KindPod, "web", "10.0.0.1", 80), destination(gateway.KindNode, "node-1", "192.168.0.1", 10250),
	} {
		if err := a.Authorize(t.Context(), alice, d); err != nil {
			t.Error(err)
		}
	}
	for _, s := range asked {
		r := s.ResourceAttributes
		got = append(got, strings.Join([]string{s.User, r.Verb, r.Resource, r.Subresource, r.Namespace, r.Name}, " "))
		if diff := cmp.Diff(alice.Groups, s.Groups); diff != "" {
			t.Error(diff)
		}
	}
	want := []string{"alice create services proxy default web", "alice create pods portforward default web", "alice create nodes proxy  node-1"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	bob := &user.DefaultInfo{Name: "bob"}
	allowed = false
	if err := a.Authorize(t.Context(), bob, destination(gateway.KindPod, "web", "10.0.0.1", 80)); gateway.ReasonOf(err) != gateway.ReasonDenied {
		t.Errorf("a refusal of the API server is %v", err)
	}
	failure = errors.New("down")
	carol := &user.DefaultInfo{Name: "carol"}
	if err := a.Authorize(t.Context(), carol, destination(gateway.KindPod, "web", "10.0.0.1", 80)); gateway.ReasonOf(err) != gateway.ReasonPathDown {
		t.Errorf("a failure of the API server is %v", err)
	}
	before := len(asked)
	if err := a.Authorize(context.Background(), alice, destination(gateway.KindExternal, "x", "192.0.2.1", 80)); err == nil || len(asked) != before {
		t.Errorf("an address outside of the cluster: %v after %d reviews", err, len(asked)-before)
	}
}
