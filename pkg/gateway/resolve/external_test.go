// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
	"github.com/fairlead-dev/fairlead/pkg/gateway/internal/clustertest"
)

// lookUps: a path that connects to addresses finds those of hosts outside of the cluster. The owner
// of a name chooses them, so one that leads into the cluster is judged as what it leads to.
func lookUps(t *testing.T, c *clustertest.Cluster) {
	hosts := map[string][]string{
		"www.example.com": {"::ffff:198.51.100.1", "198.51.100.3", "10.1.0.1", "169.254.169.254", "198.51.100.4"},
		"to-pod.example":  {"10.1.0.1"}, "to-node.example": {"192.0.2.1"}, "to-service.example": {"10.0.0.10"},
		"to-metadata.example": {"169.254.169.254"}, "to-loopback.example": {"127.0.0.1"}, "to-mapped.example": {"::ffff:127.0.0.1"},
		"db.example.com": {"198.51.100.9"}, "api.example": {"192.0.2.1"}, "none.example": {},
	}
	r := New(c.Client, Options{Namespace: "shop", APIServer: "api.example:6443", LookUp: func(_ context.Context, host string) (addrs []netip.Addr, err error) {
		if host == "broken.example" {
			return nil, &net.DNSError{Err: "server misbehaving", Name: host, IsTemporary: true}
		}
		texts, ok := hosts[host]
		if !ok {
			return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
		}
		for _, text := range texts {
			addrs = append(addrs, netip.MustParseAddr(text))
		}
		return addrs, nil
	}})
	for host, want := range map[string]string{
		"www.example.com": "External / 198.51.100.1:80", "WWW.example.com.": "External / 198.51.100.1:80", "to-pod.example": "Pod shop/web-1 10.1.0.1:80 pod shop/web-1",
		"to-node.example": "Node /node-1 192.0.2.1:80", "out": "External / 198.51.100.9:80",
	} {
		d, err := r.Resolve(t.Context(), host, 80)
		if err != nil || summary(d) != want {
			t.Errorf("%s is %s, %v; want %s", host, summary(d), err, want)
		}
		if name := strings.ToLower(strings.TrimSuffix(host, ".")); host != "out" && d.Host != name || host == "out" && d.Host != "db.example.com" || d.Port != 80 {
			t.Errorf("%s: rules see %s", host, d)
		}
	}
	if d, err := r.Resolve(t.Context(), "to-service.example", 80); err != nil || d.Kind != gateway.KindService || d.Name != "web" || d.Host != "to-service.example" {
		t.Errorf("a name that leads to a Service: %+v, %v", d, err)
	}
	// The API server is dialed by its name: its clients authenticate to it.
	if d, err := r.Resolve(t.Context(), "api.example", 6443); err != nil || d.Kind != gateway.KindExternal || d.Addr.IsValid() {
		t.Errorf("the API server: %+v, %v", d, err)
	}
	for host, want := range map[string]gateway.Reason{
		"to-metadata.example": gateway.ReasonDenied, "to-loopback.example": gateway.ReasonDenied, "to-mapped.example": gateway.ReasonDenied,
		"unknown.example": gateway.ReasonNotFound, "none.example": gateway.ReasonNotFound, "broken.example": gateway.ReasonPathDown,
	} {
		var known *gateway.Error
		if d, err := r.Resolve(t.Context(), host, 80); gateway.ReasonOf(err) != want || errors.As(err, &known) && known.Hint == "" {
			t.Errorf("%s: %+v, %v; want reason %s and a hint", host, d, err, want)
		}
	}
	d, err := r.Resolve(t.Context(), "www.example.com", 80)
	if err != nil {
		t.Fatal(err)
	}
	others, err := r.Alternatives(t.Context(), d)
	if err != nil || len(others) != 2 || summary(others[0]) != "External / 198.51.100.3:80" || summary(others[1]) != "External / 198.51.100.4:80" {
		t.Errorf("other addresses of %s: %+v, %v; want the two that lead out of the cluster", d, others, err)
	}
	d.Host = "198.51.100.1"
	if others, err := r.Alternatives(t.Context(), d); err != nil || len(others) != 0 {
		t.Errorf("other addresses of an address: %+v, %v", others, err)
	}
}
