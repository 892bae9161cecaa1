// SPDX-License-Identifier: Apache-2.0

package socks5

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/proxy"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
	"github.com/fairlead-dev/fairlead/pkg/gateway/resolve"
	"github.com/fairlead-dev/fairlead/pkg/gateway/rules"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/destinations"
)

// TestLocalAndMetadataAddressesAreRefused: by both protocols no client reaches this machine, a
// link-local address or a metadata service: not by an address, not in another spelling, and not by a
// name that resolves to one, even if all addresses and names are allowed. Each try leaves an audit
// record that says so, and nothing is dialed.
func TestLocalAndMetadataAddressesAreRefused(t *testing.T) {
	t.Parallel()
	everything, err := destinations.ParseRules("0.0.0.0/0,::/0,*")
	if err != nil {
		t.Fatal(err)
	}
	var reached atomic.Int64
	private := serveTCP(t, func(*net.TCPConn) { reached.Add(1) })
	w := newWorld(t, func(_ *world, cfg *Config) { cfg.Authorizer = &rules.Authorizer{Allow: everything} })
	for name, addr := range map[string]string{
		"rebound.example": "127.0.0.1", "metadata.google.internal": "169.254.169.254", "mapped.example": "::ffff:127.0.0.1", "nat64.example": "64:ff9b::7f00:1",
	} {
		w.name(name, netip.AddrPortFrom(netip.MustParseAddr(addr), private.Port()))
	}
	hosts := []string{
		"127.0.0.1", "127.1.2.3", "::1", "0.0.0.0", "::", "169.254.169.254", "fe80::1", "::ffff:127.0.0.1", "::ffff:169.254.169.254",
		"64:ff9b::a9fe:a9fe", "2002:7f00:1::", "fd00:ec2::254", "100.100.100.200",
		"rebound.example", "metadata.google.internal", "mapped.example", "nat64.example",
	}
	d, err := proxy.SOCKS5("tcp", w.addr, &proxy.Auth{User: testUser, Password: testPassword}, proxy.Direct)
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range hosts {
		to := net.JoinHostPort(host, fmt.Sprint(private.Port()))
		if c, err := d.Dial("tcp", to); err == nil {
			_ = c.Close()
			t.Errorf("SOCKS5 opens a connection to %s", to)
		}
		if status := connectStatus(t, w.addr, to); status != http.StatusForbidden {
			t.Errorf("CONNECT %s: status %d", to, status)
		}
	}
	for _, r := range w.ended(t, 2*len(hosts)) {
		if r.Result != "denied" || r.User != testUser {
			t.Errorf("%s: result %q of user %q", r.Destination, r.Result, r.User)
		}
	}
	if n := reached.Load(); n != 0 {
		t.Errorf("%d connections reached this machine", n)
	}
}

// TestOtherSpellingsAreNoNames: spellings of addresses that only some programs read as addresses do
// not get as far as a look-up. They are denied, as the addresses themselves are.
func TestOtherSpellingsAreNoNames(t *testing.T) {
	t.Parallel()
	r := resolve.New(nil, resolve.Options{})
	for _, host := range []string{"127.1", "0x7f000001", "2130706433", "0177.0.0.1", "localhost", "LOCALHOST.", "127.0.0.1."} {
		if d, err := r.Resolve(t.Context(), host, 80); gateway.ReasonOf(err) != gateway.ReasonDenied {
			t.Errorf("%s is %+v, %v", host, d, err)
		}
	}
}

// TestDeniedEverywhere: what the resolver refuses because it is local is denied in the reply, in
// the audit record and in the metric, as what the rules refuse is.
func TestDeniedEverywhere(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	w := newWorld(t, func(_ *world, cfg *Config) {
		cfg.Resolver = resolve.New(fake.NewClientset(), resolve.Options{})
		cfg.Authorizer = &rules.Authorizer{}
		cfg.Metrics = NewMetrics(registry)
	})
	d, err := proxy.SOCKS5("tcp", w.addr, &proxy.Auth{User: testUser, Password: testPassword}, proxy.Direct)
	if err != nil {
		t.Fatal(err)
	}
	hosts := []string{"127.0.0.1", "::1", "0.0.0.0", "169.254.169.254", "fe80::1", "100.100.100.200", "fd00:ec2::254", "localhost", "127.1"}
	for _, host := range hosts {
		to := net.JoinHostPort(host, "80")
		// The text of x/net/proxy for reply 2.
		if _, err := d.Dial("tcp", to); err == nil || !strings.Contains(err.Error(), "connection not allowed by ruleset") {
			t.Errorf("SOCKS5 to %s: %v", to, err)
		}
		if status := connectStatus(t, w.addr, to); status != http.StatusForbidden {
			t.Errorf("CONNECT %s: status %d", to, status)
		}
	}
	for _, r := range w.ended(t, 2*len(hosts)) {
		if r.Result != "denied" || r.Destination == "" || r.Error == "" {
			t.Errorf("%s: result %q: %s", r.Destination, r.Result, r.Error)
		}
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counted := map[string]float64{}
	for _, f := range families {
		if f.GetName() != "fairlead_socks5_connections_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "result" {
					counted[l.GetValue()] += m.GetCounter().GetValue()
				}
			}
		}
	}
	if len(counted) != 1 || counted["denied"] != float64(2*len(hosts)) {
		t.Errorf("the metric counts %v, want %d denied", counted, 2*len(hosts))
	}
}

func connectStatus(t *testing.T, proxyAddr, to string) int {
	t.Helper()
	c, err := net.Dial("tcp", proxyAddr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	req, err := http.NewRequest(http.MethodConnect, "http://"+to, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	login := &http.Request{Header: http.Header{}}
	login.SetBasicAuth(testUser, testPassword)
	if _, err := fmt.Fprintf(c, "CONNECT %[1]s HTTP/1.1\r\nHost: %[1]s\r\nProxy-Authorization: %[2]s\r\n\r\n", to, login.Header.Get("Authorization")); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(c), req)
	if err != nil {
		t.Fatalf("CONNECT %s: %v", to, err)
	}
	defer res.Body.Close()
	return res.StatusCode
}
