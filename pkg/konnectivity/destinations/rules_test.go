// SPDX-License-Identifier: Apache-2.0

package destinations

import (
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"
)

func TestPolicy(t *testing.T) {
	rules := func(s string) []Rule {
		r, err := ParseRules(s)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	byDefault := Policy{Deny: rules(DefaultDeny), Self: map[string]bool{"127.0.0.1": true, "node1": true}}
	listed := Policy{Allow: rules("10.0.0.0/8:443,[fd00::]/8,*.svc:443,host.example"), Deny: rules("10.1.0.0/16,:22")}
	mapped := Policy{Deny: rules("::ffff:10.2.0.0/112,::ffff:10.3.0.1")}
	strict := Policy{Allow: rules(":10250"), Deny: rules(DefaultDeny + ",127.0.0.0/16:2379,10.9.0.0/16"), Self: map[string]bool{"10.0.0.5": true, "node1": true, "10.9.0.1": true}}
	named := Policy{Allow: rules("*.svc,node1"), Deny: rules(DefaultDeny), Self: map[string]bool{"node1": true}}
	for _, c := range []struct {
		p            *Policy
		asked, found string // destination and the address it resolves to
		ok           bool
	}{
		{&Policy{}, "127.0.0.1:80", "127.0.0.1:80", true},
		{&byDefault, "10.0.0.1:80", "10.0.0.1:80", true},
		{&byDefault, "127.0.0.1:10250", "127.0.0.1:10250", true},
		{&byDefault, "127.0.0.2:80", "127.0.0.2:80", false},
		{&byDefault, "localhost:80", "[::1]:80", false},
		{&byDefault, "[::ffff:127.0.0.9]:80", "[::ffff:127.0.0.9]:80", false},
		{&byDefault, "169.254.169.254:80", "169.254.169.254:80", false},
		{&byDefault, "rebind.example:80", "169.254.169.254:80", false},
		{&byDefault, "0.0.0.0:80", "0.0.0.0:80", false},
		{&byDefault, "[::]:80", "[::]:80", false},
		{&byDefault, "[::ffff:0.0.0.0]:80", "[::ffff:0.0.0.0]:80", false},
		{&byDefault, "[::ffff:169.254.169.254]:80", "[::ffff:169.254.169.254]:80", false},
		{&mapped, "10.2.0.1:80", "10.2.0.1:80", false},
		{&mapped, "[::ffff:10.3.0.1]:80", "[::ffff:10.3.0.1]:80", false},
		{&mapped, "10.3.0.2:80", "10.3.0.2:80", true},
		{&named, "rebind.svc:80", "169.254.169.254:80", false},
		{&named, "rebind.svc:80", "127.0.0.1:80", false},
		{&named, "good.svc:80", "10.0.0.1:80", true},
		{&named, "node1:10250", "127.0.1.1:10250", true},
		{&byDefault, "[fe80::1%eth0]:80", "[fe80::1%eth0]:80", false},
		{&byDefault, "node1:10250", "127.0.0.5:10250", true},
		{&strict, "10.0.0.5:10250", "10.0.0.5:10250", true},
		{&strict, "10.0.0.5:22", "10.0.0.5:22", false}, // not in the list, though it is the node
		{&strict, "node1:10250", "127.0.1.1:10250", true},
		{&strict, "node1:2379", "127.0.0.1:2379", false},
		{&strict, "node1:10250", "169.254.1.1:10250", true},
		{&strict, "10.9.0.1:10250", "10.9.0.1:10250", false}, // denied in so many words
		{&strict, "other:10250", "127.0.0.1:10250", false},
		{&listed, "10.0.0.1:443", "10.0.0.1:443", true},
		{&listed, "10.0.0.1:80", "10.0.0.1:80", false},
		{&listed, "10.1.0.1:443", "10.1.0.1:443", false},
		{&listed, "[fd00::5]:9", "[fd00::5]:9", true},
		{&listed, "[fd00::5]:22", "[fd00::5]:22", false},
		{&listed, "a.b.svc:443", "192.0.2.1:443", true},
		{&listed, "a.b.svc:80", "192.0.2.1:80", false},
		{&listed, "HOST.example.:1", "192.0.2.1:1", true},
		{&listed, "192.0.2.1:443", "192.0.2.1:443", false},
	} {
		host, port, _ := net.SplitHostPort(c.asked)
		n, _ := strconv.Atoi(port)
		grant, err := c.p.CheckName(host, n)
		if err == nil {
			err = c.p.CheckAddr(c.found, grant)
		}
		if (err == nil) != c.ok {
			t.Errorf("%s at %s: %v, want allowed %v", c.asked, c.found, err, c.ok)
		}
	}
}

// TestDefaultDeny: the metadata services of clouds and each IPv6 form of a denied IPv4 address
// are denied, also where a name of the node leads there, while the same forms of other
// addresses, and neighbors of what is denied, are not.
func TestDefaultDeny(t *testing.T) {
	deny, err := ParseRules(DefaultDeny + ",10.9.0.0/16:22")
	if err != nil {
		t.Fatal(err)
	}
	p := Policy{Deny: deny, Self: map[string]bool{"node1": true}}
	check := func(asked, found string, port int) error {
		grant, err := p.CheckName(asked, port)
		if err != nil {
			return err
		}
		return p.CheckAddr(net.JoinHostPort(found, strconv.Itoa(port)), grant)
	}
	for _, found := range []string{
		"fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "100.100.100.200", "168.63.129.16", "192.0.0.192", "::ffff:168.63.129.16",
		"64:ff9b::a9fe:a9fe", "64:ff9b::169.254.169.254", "64:ff9b::127.0.0.1", "64:ff9b::0.0.0.0", "64:ff9b::168.63.129.16",
		"64:ff9b:1::a9fe:a9fe", "64:ff9b:1:abcd::169.254.169.254", // /96
		"64:ff9b:1:a9fe:a9:fe00::", "64:ff9b:1:a9:fe:a9fe::", "64:ff9b:1:0:a9:fea9:fe00:0", // /48, /56 and /64
		"2002:a9fe:a9fe::1", "2002:7f00:1::", "::169.254.169.254", "::127.0.0.1", "::ffff:0:169.254.169.254", "::ffff:0:100.100.100.200",
	} {
		for _, asked := range []string{"some.test", "node1"} {
			if check(asked, found, 80) == nil {
				t.Errorf("%s at %s is allowed", asked, found)
			}
		}
	}
	for _, found := range []string{
		"fd00:ec3::1", "fd20:cf::1", "100.100.100.201", "168.63.129.17", "192.0.0.193", "64:ff9b::8.8.8.8", "64:ff9b:1::8.8.8.8", "64:ff9b:1:808:8:800::",
		"64:ff9b:2::a9fe:a9fe", "2002:808:808::1", "2001:db8::a9fe:a9fe", "::8.8.8.8", "::ffff:0:8.8.8.8", "64:ff9b::10.9.0.1", "10.8.0.1",
	} {
		if err := check("some.test", found, 80); err != nil {
			t.Errorf("%s: %v", found, err)
		}
	}
	if check("some.test", "64:ff9b::10.9.0.1", 22) == nil {
		t.Error("a rule with a port does not hold for the translated address")
	}
	if err := check("node1", "127.0.0.1", 80); err != nil {
		t.Errorf("the node's own name: %v", err)
	}
	allow := Policy{Allow: []Rule{{prefix: netip.MustParsePrefix("10.0.0.0/8")}}}
	if allow.CheckAddr("[64:ff9b::10.0.0.1]:80", GrantNone) == nil {
		t.Error("an IPv4 rule allows the translated address, which may be another machine")
	}
}

// TestAnyAddress: rules for addresses at a port are told from those for names and for other ports.
func TestAnyAddress(t *testing.T) {
	for list, want := range map[string]bool{
		"": false, "a.test,*.test:443": false, "10.0.0.0/8:80,[fd00::1]:22": false, "10.0.0.0/8": true, "a.test,10.0.0.1:443": true, ":443": true, ":80": false,
	} {
		rules, err := ParseRules(list)
		if err != nil {
			t.Fatal(err)
		}
		if got := AnyAddress(rules, 443); got != want {
			t.Errorf("%q has addresses at port 443: %v, want %v", list, got, want)
		}
	}
}

func TestParseRulesRefuses(t *testing.T) {
	for _, s := range []string{"10.0.0.0/33", "10.0.0.1:0", "10.0.0.1:x", "host:99999", "10.0.0.256", "169.254", "127.1:80", "0x7f.0.0.1", "2130706433",
		"10.0.0.0-10.0.0.9", "a b", "a..b", "http://x", "fe80::1::2", "a.*.b", "*x*", "*.10", ".example.org", "..x", strings.Repeat("a", 64)} {
		if r, err := ParseRules(s); err == nil {
			t.Errorf("%q is accepted as %+v", s, r)
		}
	}
	for _, s := range []string{"*", "*.x", "*x.y", "a_b.c", "node-1", "x.", ":22", "[fd00::]/8:443", "10.0.0.1", "fe80::1%eth0"} {
		if _, err := ParseRules(s); err != nil {
			t.Errorf("%q: %v", s, err)
		}
	}
}

func FuzzParseRules(f *testing.F) {
	f.Add(DefaultDeny)
	f.Add("[fd00::]/8:443,*.x:1,:22")
	f.Fuzz(func(_ *testing.T, s string) {
		rules, err := ParseRules(s)
		if err != nil {
			return
		}
		p := Policy{Deny: rules}
		_, _ = p.CheckName("a.b", 1)
		_ = p.CheckAddr("10.0.0.1:1", GrantNone)
	})
}
