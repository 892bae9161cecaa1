// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"net"
	"testing"
)

func TestClaims(t *testing.T) {
	cert := &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{Subject: pkix.Name{CommonName: "node1"},
		DNSNames: []string{"node1.example"}, IPAddresses: []net.IP{net.IPv4(10, 0, 0, 1)}}}}
	addresses := func(_ context.Context, node string) ([]string, error) {
		if node != "node1" {
			return nil, errors.New("no such node")
		}
		return []string{"10.0.0.1", "fd00::1", "node1.internal", "node3", "hook.default.svc"}, nil
	}
	nodesWith := func(_ context.Context, host string) ([]string, error) {
		return map[string][]string{"node3": {"node1", "node3"}}[host], nil
	}
	for _, c := range []struct {
		by, node, ids string
		ok            bool
	}{
		{"any", "", "host=other&default-route=true", true},
		{"node", "node1", "host=node1", true},
		{"node", "node1", "host=node2", false},
		{"node", "node1", "host=hook.default.svc", true}, // but strategy destHost does not use it
		{"node", "node1", "ipv4=10.0.0.2", false},
		{"node", "node1", "ipv4=10.0.0.1&ipv6=fd00:0::1&host=node1.internal&host=NODE1", true},
		{"node", "node1", "ipv4=10.0.0.1&ipv4=10.0.0.2", false},
		{"node", "node2", "ipv4=10.0.0.1", false},
		{"node", "node1", "ipv4=::ffff:10.0.0.1&ipv6=FD00::1", true},
		{"node", "node1", "host=node3", false}, // its own status has the name, but another node is called so
		{"node", "", "host=node1", false},
		{"node", "", "", false},
		{"node", "node1", "default-route=true", false},
		{"node", "gateway", "default-route=true", true},
		{"certificate", "", "host=node1.example&ipv4=10.0.0.1&host=node1", true},
		{"certificate", "", "ipv4=10.0.0.2", false},
		{"certificate", "", "host=node2.example", false},
		{"certificate", "", "default-route=true", false},
	} {
		ids, err := ParseIdentifiers(c.ids)
		if err != nil {
			t.Fatal(err)
		}
		claims := Claims{By: c.by, DefaultRoute: []string{"gateway"}, NodeAddresses: addresses, NodesWith: nodesWith}
		if err := claims.check(t.Context(), cert, c.node, &ids); (err == nil) != c.ok {
			t.Errorf("%+v: %v", c, err)
		}
		if contested := len(ids.contested) > 0; contested != (c.ids == "host=hook.default.svc") {
			t.Errorf("%+v: contested %v", c, ids.contested)
		}
	}
	all := Claims{By: "node", DefaultRoute: []string{"*"}}
	if err := all.check(t.Context(), cert, "node1", &Identifiers{DefaultRoute: true}); err != nil {
		t.Errorf("everybody may claim the default route: %v", err)
	}
	if err := all.check(t.Context(), cert, "", &Identifiers{DefaultRoute: true}); err == nil {
		t.Error("a token that is bound to no node may claim the default route")
	}
	if err := (&Claims{By: "certificate"}).check(t.Context(), &tls.ConnectionState{}, "", &Identifiers{}); err == nil {
		t.Error("no certificate is as good as one")
	}
}

func backendNamed(id, ids string) *Backend {
	parsed, _ := ParseIdentifiers(ids)
	return &Backend{agentID: id, ids: parsed}
}

func TestStrategies(t *testing.T) {
	if _, err := ParseStrategies("default,nope"); err == nil {
		t.Error("unknown strategy is accepted")
	}
	if _, err := ParseStrategies(","); err == nil {
		t.Error("no strategy is accepted")
	}
	p := &pool{strategy: StrategyDestHost, byKey: map[string]*group{}}
	b := backendNamed("a", "ipv4=10.0.0.1&host=h&ipv6=fd00::1")
	p.add(b)
	if len(p.groups) != 3 || p.byKey["h"] == nil || p.byKey["fd00::1"] == nil {
		t.Errorf("keys %v", p.byKey)
	}
	p.remove(b)
	if len(p.groups) != 0 || len(p.byKey) != 0 {
		t.Error("something is left")
	}
	r := &pool{strategy: StrategyDefaultRoute, byKey: map[string]*group{}}
	r.add(b)
	r.add(backendNamed("b", "default-route=true"))
	if len(r.groups) != 1 || r.groups[0].key != backendNamed("b", "").key() {
		t.Errorf("default route has %d groups", len(r.groups))
	}
}

// TestHostsAreComparedCanonically checks that an agent's claim matches a destination in
// whatever form the destination is written, and that claims that match no destination are
// dropped.
func TestHostsAreComparedCanonically(t *testing.T) {
	p := &pool{strategy: StrategyDestHost, byKey: map[string]*group{}}
	p.add(backendNamed("a", "ipv6=FD00:9::1&ipv6=::1&host=Node-A&ipv4=10.0.0.1&ipv4=&host="))
	if len(p.groups) != 4 {
		t.Errorf("%d hosts, want 4", len(p.groups))
	}
	for _, address := range []string{"[fd00:9::1]:10250", "[FD00:9:0::1]:1", "[0:0:0:0:0:0:0:1]:2", "node-a:1", "NODE-A:1", "[::ffff:10.0.0.1]:1"} {
		if p.byKey[hostOf(address)] == nil {
			t.Errorf("%s is not found in %v", address, p.byKey)
		}
	}
	if p.byKey[hostOf(":80")] != nil {
		t.Error("an empty identifier matches a destination without a host")
	}
}

// TestSameIDTwice checks that connections with one ID count as one agent, unless the server
// knows that they belong to different nodes. It knows that also if it accepts any claim.
func TestSameIDTwice(t *testing.T) {
	for _, by := range []string{"node", "any", ""} {
		claims := Claims{By: by}
		p := &pool{strategy: StrategyDefault, byKey: map[string]*group{}}
		for _, node := range []string{"node1", "node2", "node1"} {
			b := backendNamed("a", "")
			if err := claims.check(t.Context(), nil, node, &b.ids); err != nil {
				t.Fatal(err)
			}
			p.add(b)
		}
		p.add(backendNamed("a", ""))
		p.add(backendNamed("a", ""))
		sizes := map[int]int{}
		for _, g := range p.groups {
			sizes[len(g.links)]++
		}
		if len(p.groups) != 3 || sizes[2] != 2 || sizes[1] != 1 {
			t.Errorf("claims %q: %d groups of sizes %v", by, len(p.groups), sizes)
		}
	}
}

func TestHostOf(t *testing.T) {
	for in, want := range map[string]string{"a:1": "a", "a": "a", "[::1]:80": "::1", "[::1]": "::1", "10.0.0.1:443": "10.0.0.1"} {
		if got := hostOf(in); got != want {
			t.Errorf("%q gives %q, want %q", in, got, want)
		}
	}
}
