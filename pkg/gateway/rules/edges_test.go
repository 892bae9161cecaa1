// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
)

// TestCheckHost: the check of a host before it is resolved denies local addresses and what --deny has, and nothing else. Only
// --allow-local, and the API server on this host, lift the denial of local addresses, and neither lifts --deny.
func TestCheckHost(t *testing.T) {
	for _, c := range []struct {
		name string
		a    Authorizer
		host string
		port uint16
		ok   bool
	}{
		{"loopback", Authorizer{}, "127.0.0.1", 80, false},
		{"loopback, IPv6", Authorizer{}, "::1", 80, false},
		{"metadata", Authorizer{}, "169.254.169.254", 80, false},
		{"another address", Authorizer{}, "192.0.2.1", 80, true},
		{"a name", Authorizer{}, "web.example", 80, true},
		{"loopback with --allow-local", Authorizer{AllowLocal: true}, "127.0.0.1", 80, true},
		{"denied loopback with --allow-local", Authorizer{AllowLocal: true, Deny: parse(t, "127.0.0.1")}, "127.0.0.1", 80, false},
		{"local API server", Authorizer{LocalAPIServer: "127.0.0.1:6443"}, "127.0.0.1", 6443, true},
		{"another port of its host", Authorizer{LocalAPIServer: "127.0.0.1:6443"}, "127.0.0.1", 6444, false},
		{"denied address", Authorizer{Deny: parse(t, "192.0.2.0/24")}, "192.0.2.1", 80, false},
		{"address that is not denied", Authorizer{Deny: parse(t, "192.0.2.0/24")}, "198.51.100.1", 80, true},
		{"denied name", Authorizer{Deny: parse(t, "db.example")}, "db.example", 80, false},
		{"name that is not denied", Authorizer{Deny: parse(t, "db.example")}, "web.example", 80, true},
	} {
		if err := c.a.CheckHost(c.host, c.port); (err == nil) != c.ok || err != nil && gateway.ReasonOf(err) != gateway.ReasonDenied {
			t.Errorf("%s: %v, want allowed %v", c.name, err, c.ok)
		}
	}
}

// TestFileRefusesHalves: each half of a range, and of apiVersion and kind, is checked.
func TestFileRefusesHalves(t *testing.T) {
	for _, ports := range []string{"80-x", "x-80", "80-70000", "65536", "70000-80000", "0-80", "-80", "80-"} {
		if _, err := Parse([]byte("apiVersion: fairlead.dev/v1alpha1\nkind: GatewayRules\nallow: [{ports: ['" + ports + "']}]")); err == nil {
			t.Errorf("ports %q are accepted", ports)
		}
	}
	for _, header := range []string{"apiVersion: fairlead.dev/v1alpha1\nkind: Other", "apiVersion: example.com/v1\nkind: GatewayRules"} {
		if _, err := Parse([]byte(header)); err == nil {
			t.Errorf("%q is accepted", header)
		}
	}
	path := filepath.Join(t.TempDir(), "missing.yaml")
	if _, err := Open(path); !os.IsNotExist(err) {
		t.Errorf("a missing file: %v", err)
	}
}

// TestRuleOfGroups: a rule with groups and no users holds for these groups only.
func TestRuleOfGroups(t *testing.T) {
	web := destination(gateway.KindService, "web.default", "10.0.0.1", 80)
	for rules, ok := range map[string]bool{"allow: [{groups: [ops]}]": false, "allow: [{groups: [dev]}]": true, "allow: [{users: [bob]}]": false} {
		if err := (&Authorizer{File: open(t, rules)}).Authorize(t.Context(), alice, web); (err == nil) != ok {
			t.Errorf("%s: %v, want allowed %v", rules, err, ok)
		}
	}
}

// TestRuleOfPorts: for a Service, a rule compares the port that the client sent, and not that of the Pod behind it. The same holds for a
// destination without an address.
func TestRuleOfPorts(t *testing.T) {
	web := destination(gateway.KindService, "web.default", "10.0.0.1", 80)
	web.Addr = netip.MustParseAddrPort("10.0.0.1:8080")
	for rules, ok := range map[string]bool{"allow: [{ports: ['80']}]": true, "allow: [{ports: ['8080']}]": false} {
		if err := (&Authorizer{File: open(t, rules)}).Authorize(t.Context(), alice, web); (err == nil) != ok {
			t.Errorf("%s: %v, want allowed %v", rules, err, ok)
		}
	}
	for rules, ok := range map[string]bool{"allow: [{kinds: [External], ports: ['443']}]": true, "allow: [{kinds: [External], ports: ['80']}]": false} {
		allowed, sure, err := open(t, rules).checkName(alice, named("web.example", 443))
		if allowed != ok || sure != ok || err != nil {
			t.Errorf("%s: allowed %v, sure %v, %v, want %v", rules, allowed, sure, err, ok)
		}
	}
}

// TestNamesOfSeveralRules: each of several rules counts for a name, in any order. A rule with addresses is not sure, neither as a
// permission nor as a denial.
func TestNamesOfSeveralRules(t *testing.T) {
	const fits, other, maybe = "{kinds: [External], names: [web.example]}", "{kinds: [External], names: [db.example]}", "{kinds: [External], addresses: [192.0.2.0/24]}"
	for rules, want := range map[string][2]bool{
		"allow: [" + fits + "]":                 {true, true},
		"allow: [" + fits + ", " + other + "]":  {true, true},
		"allow: [" + other + ", " + fits + "]":  {true, true},
		"allow: [" + other + "]":                {false, false},
		"allow: [" + maybe + "]":                {true, false},
		"allow: [" + maybe + ", " + other + "]": {true, false},
		"allow: [" + fits + ", " + maybe + "]":  {true, true},
		"deny: [" + maybe + ", " + other + "]":  {false, false},
	} {
		if allowed, sure, err := open(t, rules).checkName(alice, named("web.example", 443)); [2]bool{allowed, sure} != want || err != nil {
			t.Errorf("%s: %v, %v, %v, want %v", rules, allowed, sure, err, want)
		}
	}
	// A denial needs no kind; a permission of the same form allows nothing outside of the cluster.
	if _, _, err := open(t, "deny: [{names: [web.example]}]").checkName(alice, named("web.example", 443)); err == nil {
		t.Error("a denied name is not denied")
	}
}

// TestRefusalsName: a refusal names the rule, by its place if it has no name, and the object with its namespace.
func TestRefusalsName(t *testing.T) {
	web, node := destination(gateway.KindService, "web.default", "10.0.0.1", 80), destination(gateway.KindNode, "node-1", "192.168.0.1", 10250)
	for _, c := range []struct {
		rules string
		d     gateway.Destination
		want  string
	}{
		{"deny: [{names: [x]}, {names: [web]}]", web, `rule "deny[1]"`},
		{"", web, "Service default/web "},
		{"", node, "Node node-1 "},
	} {
		if err := (&Authorizer{File: open(t, c.rules)}).Authorize(t.Context(), alice, c.d); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %s", c.rules, err, c.want)
		}
	}
}

// TestDeniesServices: only rules that hold for Services make the gateway look for the Services of a Pod.
func TestDeniesServices(t *testing.T) {
	for rules, want := range map[string]bool{
		"": false, "allow: [{}]": false, "deny: [{}]": true, "deny: [{kinds: [Pod, Service]}]": true, "deny: [{kinds: [Pod]}]": false,
		"deny: [{kinds: [Pod]}, {kinds: [Service]}]": true,
	} {
		if got := open(t, rules).deniesServices(); got != want {
			t.Errorf("%q: %v, want %v", rules, got, want)
		}
	}
}
