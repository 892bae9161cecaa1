// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/klog/v2"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/gateway"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/destinations"
)

// The type of a rule file.
const (
	APIVersion = v1alpha1.GatewayRulesVersion
	Kind       = "GatewayRules"
)

// List is the content of a rule file. A destination that no rule allows is denied; a rule of
// Deny wins over each rule of Allow.
type List struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Allow      []Rule `json:"allow,omitempty"`
	Deny       []Rule `json:"deny,omitempty"`
}

// Rule matches clients and destinations. An empty field matches everything, except that
// a rule of Allow matches External destinations only where Kinds or Addresses name them. Users, groups,
// namespaces and names may contain "*". Names are those of objects and, for External, the host that the
// client sent.
type Rule struct {
	// Name is for refusals and logs.
	Name string `json:"name,omitempty"`

	Users  []string `json:"users,omitempty"`
	Groups []string `json:"groups,omitempty"`

	Kinds      []gateway.Kind `json:"kinds,omitempty"`
	Namespaces []string       `json:"namespaces,omitempty"`
	Names      []string       `json:"names,omitempty"`
	// Ports are numbers or ranges such as 8000-8100. For a Service it is the port that the
	// client asked for.
	Ports []string `json:"ports,omitempty"`
	// Addresses are CIDRs of the resolved address. A rule of Deny also holds for an address that the client
	// sent, such as a cluster IP.
	Addresses []string `json:"addresses,omitempty"`

	addresses []destinations.Rule
	ports     [][2]uint16
}

// Parse reads the content of a rule file.
func Parse(text []byte) (*List, error) {
	var l List
	if err := yaml.UnmarshalStrict(text, &l); err != nil {
		return nil, err
	}
	if l.APIVersion != APIVersion || l.Kind != Kind {
		return nil, fmt.Errorf("apiVersion %q, kind %q: want %s, %s", l.APIVersion, l.Kind, APIVersion, Kind)
	}
	for verb, rules := range map[string][]Rule{"allow": l.Allow, "deny": l.Deny} {
		for i := range rules {
			if rules[i].Name == "" {
				rules[i].Name = fmt.Sprintf("%s[%d]", verb, i)
			}
			if err := rules[i].compile(); err != nil {
				return nil, fmt.Errorf("rule %s: %w", rules[i].Name, err)
			}
		}
	}
	return &l, nil
}

func (r *Rule) compile() error {
	for _, k := range r.Kinds {
		if !slices.Contains([]gateway.Kind{gateway.KindService, gateway.KindPod, gateway.KindNode, gateway.KindExternal}, k) {
			return fmt.Errorf("kind %q: want Service, Pod, Node or External", k)
		}
	}
	if !r.hasNamespace() {
		return fmt.Errorf("kinds %v with namespaces match nothing, because these have no namespace: remove namespaces, or split the rule", r.Kinds)
	}
	for _, pattern := range slices.Concat(r.Users, r.Groups, r.Namespaces, r.Names) {
		if pattern == "" {
			return fmt.Errorf("an empty name matches nothing")
		}
		if _, err := path.Match(escape(pattern), ""); err != nil {
			return fmt.Errorf("%q: %w", pattern, err)
		}
	}
	for _, text := range r.Addresses {
		if _, err := netip.ParsePrefix(text); err != nil {
			return err
		}
		list, err := destinations.ParseRules(text)
		if err != nil {
			return err
		}
		r.addresses = append(r.addresses, list...)
	}
	return r.compilePorts()
}

func (r *Rule) compilePorts() error {
	for _, text := range r.Ports {
		first, last, isRange := strings.Cut(text, "-")
		if !isRange {
			last = first
		}
		low, err := strconv.ParseUint(first, 10, 16)
		high, err2 := strconv.ParseUint(last, 10, 16)
		if err != nil || err2 != nil || low == 0 || low > high {
			return fmt.Errorf("port %q: want a number or a range such as 8000-8100", text)
		}
		r.ports = append(r.ports, [2]uint16{uint16(low), uint16(high)})
	}
	return nil
}

// escape leaves "*" alone as a special character: names of users contain others. A "*"
// matches "/" too, because no pattern is a path.
func escape(pattern string) string {
	return strings.NewReplacer(`\`, `\\`, "[", `\[`, "?", `\?`, "/", "\x00").Replace(pattern)
}

func matchesOne(patterns []string, value string) bool {
	value = strings.ReplaceAll(value, "/", "\x00")
	return slices.ContainsFunc(patterns, func(p string) bool {
		ok, _ := path.Match(escape(p), value)
		return ok
	})
}

func (r *Rule) matches(client user.Info, d gateway.Destination, deny bool) bool {
	return r.matchesClient(client) && r.matchesObject(d, deny) &&
		(len(r.ports) == 0 || r.matchesPort(d, deny)) &&
		(len(r.addresses) == 0 || r.matchesAddress(d, deny))
}

// mayMatch compares a destination without an address, and Pods without a name. It tells whether the rule
// matches whatever these are.
func (r *Rule) mayMatch(client user.Info, d gateway.Destination, deny bool) (matched, sure bool) {
	known := *r
	sure = len(r.addresses) == 0
	known.addresses = nil
	if d.Name == "" && d.Kind == gateway.KindPod && len(r.Names) > 0 {
		known.Names, sure = nil, false
	}
	return known.matches(client, d, deny), sure
}

// matchesPort compares the port that the client sent. That of a Service may lead to another port
// of a node or a Pod of another namespace: then a permission has to name that one, and a denial
// of either holds.
func (r *Rule) matchesPort(d gateway.Destination, deny bool) bool {
	has := func(port uint16) bool {
		return slices.ContainsFunc(r.ports, func(p [2]uint16) bool { return p[0] <= port && port <= p[1] })
	}
	if d.Kind == gateway.KindService || !d.Addr.IsValid() {
		return has(d.Port)
	}
	return has(d.Addr.Port()) || deny && has(d.Port)
}

func (r *Rule) matchesClient(client user.Info) bool {
	return len(r.Users) == 0 && len(r.Groups) == 0 || matchesOne(r.Users, client.GetName()) ||
		slices.ContainsFunc(client.GetGroups(), func(g string) bool { return matchesOne(r.Groups, g) })
}

func (r *Rule) matchesObject(d gateway.Destination, deny bool) bool {
	if !deny && d.Kind == gateway.KindExternal && len(r.Addresses) == 0 && !slices.Contains(r.Kinds, gateway.KindExternal) {
		return false
	}
	return (len(r.Kinds) == 0 || slices.Contains(r.Kinds, d.Kind)) &&
		(len(r.Namespaces) == 0 || matchesOne(r.Namespaces, d.Namespace)) &&
		(len(r.Names) == 0 || r.matchesName(d))
}

// matchesAddress judges an IPv6 form of an IPv4 address as the agent does: a denial holds
// for it, a permission does not. A denial also holds for an address that the client sent, such as the
// cluster IP of a Service. No rule with addresses matches the API server by a name that only the path resolves.
func (r *Rule) matchesAddress(d gateway.Destination, deny bool) bool {
	if !deny {
		p := destinations.Policy{Allow: r.addresses}
		return p.CheckAddr(d.Addr.String(), destinations.GrantNone) == nil
	}
	p := destinations.Policy{Deny: r.addresses}
	if d.Addr.IsValid() && p.CheckAddr(d.Addr.String(), destinations.GrantNone) != nil {
		return true
	}
	sent, err := netip.ParseAddr(strings.Trim(d.Host, "[]"))
	return err == nil && p.CheckAddr(netip.AddrPortFrom(sent, d.Port).String(), destinations.GrantNone) != nil
}

// checkEvery is how often a rule file is read, at most.
const checkEvery = time.Second

// File is a rule file that is read again when it changes.
type File struct {
	path string

	mu      sync.Mutex
	checked time.Time
	text    []byte
	list    *List
}

// Open reads a rule file.
func Open(path string) (*File, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	l, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &File{path: path, text: text, list: l, checked: time.Now()}, nil
}

// current returns the rules. A file that cannot be read or parsed leaves the last good ones.
func (f *File) current() *List {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.checked) < checkEvery {
		return f.list
	}
	f.checked = time.Now()
	text, err := os.ReadFile(f.path)
	if err != nil {
		klog.ErrorS(err, "Reading the rule file failed, keeping the rules", "file", f.path)
		return f.list
	}
	if bytes.Equal(text, f.text) {
		return f.list
	}
	f.text = text
	l, err := Parse(text)
	if err != nil {
		klog.ErrorS(err, "The rule file is not valid, keeping the rules", "file", f.path)
		return f.list
	}
	klog.InfoS("Loaded the rule file", "file", f.path, "allow", len(l.Allow), "deny", len(l.Deny))
	f.list = l
	return f.list
}

// check returns an error if the file denies the destination, or one of the Services that it stands for, and
// whether a rule allows it. Without a matching rule, External destinations are left to --allow.
func (f *File) check(client user.Info, d gateway.Destination, also []gateway.Destination) (bool, error) {
	l := f.current()
	for _, as := range append([]gateway.Destination{d}, also...) {
		if r := l.denies(client, as); r != nil {
			return false, f.denied(r, client, d)
		}
	}
	if r := l.deniesPod(client, d); r != nil {
		return false, f.denied(r, client, d)
	}
	for i := range l.Allow {
		if l.Allow[i].matches(client, d, false) {
			return true, nil
		}
	}
	if d.Kind == gateway.KindExternal {
		return false, nil
	}
	return false, noRule(f, client, d)
}

// checkName judges a destination of which only the name is known. It returns an error if the file denies it
// wherever it leads, and whether a rule allows it: sure, or if its address is the right one.
func (f *File) checkName(client user.Info, d gateway.Destination) (allowed, sure bool, err error) {
	l := f.current()
	for i := range l.Deny {
		if matched, sure := l.Deny[i].mayMatch(client, d, true); matched && sure {
			return false, false, f.denied(&l.Deny[i], client, d)
		}
	}
	for i := range l.Allow {
		matched, certain := l.Allow[i].mayMatch(client, d, false)
		allowed, sure = allowed || matched, sure || matched && certain
	}
	return allowed, sure, nil
}

// denies returns the rule that denies a destination, if there is one.
func (f *File) denies(client user.Info, d gateway.Destination) *Rule {
	return f.current().denies(client, d)
}

func (l *List) denies(client user.Info, d gateway.Destination) *Rule {
	for i := range l.Deny {
		if l.Deny[i].matches(client, d, true) {
			return &l.Deny[i]
		}
	}
	return nil
}

// deniesServices reports whether a rule denies some Service.
func (f *File) deniesServices() bool {
	return slices.ContainsFunc(f.current().Deny, func(r Rule) bool {
		return len(r.Kinds) == 0 || slices.Contains(r.Kinds, gateway.KindService)
	})
}

func (f *File) denied(r *Rule, client user.Info, d gateway.Destination) error {
	return denied(d, "", "rule %q of %s denies it to %q", r.Name, f.path, client.GetName())
}

func noRule(f *File, client user.Info, d gateway.Destination) error {
	return denied(d, "", "no rule of %s allows %s %s to %q", f.path, d.Kind, objectName(d), client.GetName())
}

func objectName(d gateway.Destination) string {
	if d.Namespace == "" {
		return d.Name
	}
	return d.Namespace + "/" + d.Name
}
