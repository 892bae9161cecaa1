// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
)

// TestParse: names are read as the cluster's DNS reads them.
func TestParse(t *testing.T) {
	for host, want := range map[string]query{
		"web":                       {host: "web", namespace: "home", service: "web", maybe: true},
		"WEB.":                      {host: "web", namespace: "home", service: "web", maybe: true},
		"web.shop":                  {host: "web.shop", namespace: "shop", service: "web", maybe: true},
		"example.com.":              {host: "example.com", maybe: true},
		"www.example.com":           {host: "www.example.com", maybe: true},
		"web.shop.svc":              {host: "web.shop.svc", namespace: "shop", service: "web"},
		"Web.Shop.SVC.Cluster.Test": {host: "web.shop.svc.cluster.test", namespace: "shop", service: "web"},
		"db-0.db.shop.svc":          {host: "db-0.db.shop.svc", namespace: "shop", service: "db", hostname: "db-0"},
		"10-0-0-1.shop.pod":         {host: "10-0-0-1.shop.pod", namespace: "shop", podAddr: netip.MustParseAddr("10.0.0.1")},
		"2001-db8--1.shop.pod.cluster.test.": {
			host: "2001-db8--1.shop.pod.cluster.test", namespace: "shop", podAddr: netip.MustParseAddr("2001:db8::1"),
		},
		"10.0.0.1":        {host: "10.0.0.1", addr: netip.MustParseAddr("10.0.0.1")},
		"[2001:db8::1]":   {host: "[2001:db8::1]", addr: netip.MustParseAddr("2001:db8::1")},
		"::ffff:10.0.0.1": {host: "::ffff:10.0.0.1", addr: netip.MustParseAddr("10.0.0.1")},
	} {
		got, err := parse(host, "home", "cluster.test")
		if err != nil {
			t.Errorf("%s: %v", host, err)
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(query{}), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
			t.Errorf("%s (-want +got):\n%s", host, diff)
		}
	}
}

// TestParseRefuses: what is no name of a host is refused, above all other spellings of
// addresses, which rules would not see.
func TestParseRefuses(t *testing.T) {
	for host, want := range map[string]gateway.Reason{
		"": gateway.ReasonUnsupported, ".": gateway.ReasonUnsupported, "a..b": gateway.ReasonUnsupported,
		"_http._tcp.web.shop.svc": gateway.ReasonUnsupported, "127.1": gateway.ReasonDenied, "2130706433": gateway.ReasonDenied,
		"0x7f000001": gateway.ReasonDenied, "010.0.0.1": gateway.ReasonDenied, "1.2.3.4.": gateway.ReasonDenied,
		"localhost": gateway.ReasonDenied, "a.LOCALHOST.": gateway.ReasonDenied, "fe80::1%eth0": gateway.ReasonDenied,
		"web\x00.shop": gateway.ReasonUnsupported, "wéb": gateway.ReasonUnsupported, "a b": gateway.ReasonUnsupported,
		"web.shop.cluster.test": gateway.ReasonNotFound, "svc.cluster.test": gateway.ReasonNotFound, "a.b.c.d.svc": gateway.ReasonNotFound,
		"nothing.shop.pod": gateway.ReasonNotFound, "shop.svc": gateway.ReasonNotFound,
	} {
		_, err := parse(host, "home", "cluster.test")
		if err == nil || gateway.ReasonOf(err) != want {
			t.Errorf("%q: %v, want reason %s", host, err, want)
		}
	}
}
