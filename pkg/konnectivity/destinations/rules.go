// SPDX-License-Identifier: Apache-2.0

// Package destinations holds the rules for addresses that may be dialed, and the list of those
// that are denied by default: the machine itself, link-local addresses and the metadata services
// of clouds. The agent and the ways into the cluster (pkg/gateway/rules) share it, so that an
// address that one denies is denied by the other in the same forms.
package destinations

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
)

const (
	// denyLocal is the node itself. Linux connects the unspecified addresses 0.0.0.0 and ::
	// to the loopback device.
	denyLocal = "127.0.0.0/8,::1/128,0.0.0.0/8,::/128,169.254.0.0/16,fe80::/10"
	// denyMetadata are the services of clouds other than those at link-local addresses: AWS,
	// Google Cloud, Alibaba Cloud, Azure and Oracle Cloud. They trust each program on the node.
	denyMetadata = "fd00:ec2::/32,fd20:ce::/64,100.100.100.200/32,168.63.129.16/32,192.0.0.192/32"
	// DefaultDeny is what an agent does not dial by default.
	DefaultDeny = denyLocal + "," + denyMetadata
)

// Rule matches destinations: a CIDR, an address or a host name (which may start
// with "*."), each with an optional port.
type Rule struct {
	prefix netip.Prefix
	host   string
	port   int // 0 is any
	text   string
	// local: the rule is one of denyLocal or a part of one, for any port. It yields
	// where the node itself is addressed.
	local bool
}

var localPrefixes = sync.OnceValue(func() (all []netip.Prefix) {
	for _, text := range strings.Split(denyLocal, ",") {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
})

func (r *Rule) isLocal() bool {
	return r.port == 0 && r.prefix.IsValid() && slices.ContainsFunc(localPrefixes(), func(p netip.Prefix) bool {
		return p.Bits() <= r.prefix.Bits() && p.Contains(r.prefix.Addr())
	})
}

// ParseRules reads a comma-separated list of rules: "10.0.0.0/8",
// "10.0.0.0/8:443", "[fd00::]/8:443", "*.example.org:443", ":22".
func ParseRules(list string) ([]Rule, error) {
	var rules []Rule
	for _, text := range strings.Split(list, ",") {
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		r, err := parseRule(text)
		if err != nil {
			return nil, fmt.Errorf("destination rule %q: %w", text, err)
		}
		r.local = r.isLocal()
		rules = append(rules, r)
	}
	return rules, nil
}

func parseRule(text string) (Rule, error) {
	r := Rule{text: text}
	rest := text
	if i := strings.LastIndexByte(rest, ':'); i >= 0 && (strings.Count(rest, ":") == 1 || strings.Contains(rest[:i], "]")) {
		port, err := strconv.Atoi(rest[i+1:])
		if err != nil || port < 1 || port > 65535 {
			return r, fmt.Errorf("bad port %q", rest[i+1:])
		}
		r.port, rest = port, rest[:i]
	}
	rest = strings.NewReplacer("[", "", "]", "").Replace(rest)
	if strings.Contains(rest, "/") {
		p, err := netip.ParsePrefix(rest)
		if err == nil && p.Addr().Is4In6() && p.Bits() >= 96 { // addresses are compared unmapped
			p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
		r.prefix = p.Masked()
		return r, err
	}
	if a, err := netip.ParseAddr(rest); err == nil {
		a = a.Unmap()
		r.prefix = netip.PrefixFrom(a, a.BitLen())
		return r, nil
	}
	r.host = strings.ToLower(strings.TrimSuffix(rest, "."))
	if r.host != "" || r.port == 0 {
		return r, checkHost(r.host)
	}
	return r, nil
}

// checkHost refuses what can be no host name, and so would match nothing: a rule that
// was meant to deny an address must not be taken for a name.
func checkHost(host string) error {
	if host == "*" {
		return nil
	}
	name := host
	if suffix, ok := strings.CutPrefix(host, "*"); ok {
		name = strings.TrimPrefix(suffix, ".")
	} else if strings.HasPrefix(host, ".") {
		return fmt.Errorf("%q is no host name: write *%s for all names that end so", host, host)
	}
	labels := strings.Split(name, ".")
	for _, label := range labels {
		if label == "" || len(label) > 63 || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return fmt.Errorf("%q is neither an address, a CIDR nor a host name", host)
		}
	}
	if _, err := strconv.ParseUint(labels[len(labels)-1], 0, 64); err == nil {
		return fmt.Errorf("%q looks like an address and is none: write all four numbers, each up to 255", host)
	}
	return nil
}

func (r *Rule) matchPort(port int) bool { return r.port == 0 || r.port == port }

func (r *Rule) matchAddr(a netip.Addr, port int) bool {
	if r.host == "" && !r.prefix.IsValid() {
		return r.matchPort(port)
	}
	return r.prefix.IsValid() && r.prefix.Contains(a.Unmap()) && r.matchPort(port)
}

// matchAny reports whether one of these addresses matches.
func (r *Rule) matchAny(addrs []netip.Addr, port int) bool {
	return slices.ContainsFunc(addrs, func(a netip.Addr) bool { return r.matchAddr(a, port) })
}

func (r *Rule) matchHost(host string, port int) bool {
	if r.host == "" || !r.matchPort(port) {
		return false
	}
	if suffix, ok := strings.CutPrefix(r.host, "*"); ok {
		return strings.HasSuffix(host, suffix)
	}
	return host == r.host
}

// AnyAddress reports whether one of these rules has addresses at this port.
func AnyAddress(rules []Rule, port int) bool {
	return slices.ContainsFunc(rules, func(r Rule) bool { return r.host == "" && r.matchPort(port) })
}

// HasAddresses reports whether one of these rules has addresses at any port.
func HasAddresses(rules []Rule) bool {
	return slices.ContainsFunc(rules, func(r Rule) bool { return r.host == "" })
}

// HasNames reports whether one of these rules has the name of a host.
func HasNames(rules []Rule) bool {
	return slices.ContainsFunc(rules, func(r Rule) bool { return r.host != "" })
}

// Policy decides which destinations may be dialed.
type Policy struct {
	Allow []Rule // empty allows everything that is not denied
	Deny  []Rule
	// Self are the addresses and names under which the node is known to the servers.
	// Rules of Deny for loopback and link-local addresses do not hold for them, all
	// others do.
	Self map[string]bool
}

// Grant is what the name of a destination means for the address behind it.
type Grant int

const (
	// GrantNamed: a rule allows the name, so that the address needs no rule.
	// It must still not be denied.
	GrantNamed Grant = 1 << iota
	// GrantSelf: the name is the node's own, which may be a loopback address.
	GrantSelf
	// GrantNone: the address needs a rule of its own if there is a list.
	GrantNone Grant = 0
)

// CheckName judges the destination as it was asked for, before name resolution.
func (p *Policy) CheckName(host string, port int) (Grant, error) {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	grant := GrantNone
	if p.Self[host] {
		grant |= GrantSelf
	}
	for i := range p.Deny {
		if p.Deny[i].matchHost(host, port) {
			return GrantNone, fmt.Errorf("destination is denied by rule %q", p.Deny[i].text)
		}
	}
	for i := range p.Allow {
		if p.Allow[i].matchHost(host, port) {
			return grant | GrantNamed, nil
		}
	}
	return grant, nil
}

// CheckAddr judges the address that is about to be connected to, after name
// resolution, so that a name cannot lead to a denied address, even if the name is
// allowed. grant is what CheckName said.
func (p *Policy) CheckAddr(address string, grant Grant) error {
	host, portText, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	port, _ := strconv.Atoi(portText)
	if i := strings.IndexByte(host, '%'); i >= 0 {
		host = host[:i]
	}
	a, err := netip.ParseAddr(host)
	if err != nil {
		return err
	}
	embedded := embeddedIPv4(a)
	self := grant&GrantSelf != 0 || p.Self[a.Unmap().String()]
	for i := range p.Deny {
		if r := &p.Deny[i]; r.matchAddr(a, port) && !(self && r.local) || r.matchAny(embedded, port) {
			return fmt.Errorf("destination %s is denied by rule %q", address, p.Deny[i].text)
		}
	}
	if len(p.Allow) == 0 || grant&GrantNamed != 0 {
		return nil
	}
	for i := range p.Allow {
		if p.Allow[i].matchAddr(a, port) {
			return nil
		}
	}
	return fmt.Errorf("destination %s is not in the list of allowed destinations", address)
}
