// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"net/netip"
	"strings"
	"testing"
)

// FuzzParse: what is accepted is an address without a zone or a name of plain labels that no
// resolver further on takes for an address, and never this machine.
func FuzzParse(f *testing.F) {
	for _, host := range []string{
		"web", "web.shop.svc.cluster.test", "db-0.db.shop.svc", "10-0-0-1.shop.pod", "example.com.", "[fd00::1]", "::ffff:10.0.0.1", "fe80::1%eth0",
		"127.1", "0x7f.1", "0X7F000001", "1.2.3.4.", "LOCALHOST", "_http._tcp.web", "a..b", "[web]", "\x00", "é",
	} {
		f.Add(host)
	}
	f.Fuzz(func(t *testing.T, host string) {
		q, err := parse(host, "home", "cluster.test")
		if err != nil {
			return
		}
		if q.addr.IsValid() {
			if q.addr.Zone() != "" || q.addr.Is4In6() || q.service != "" || q.maybe {
				t.Fatalf("%q is %+v", host, q)
			}
			return
		}
		if _, err := netip.ParseAddr(q.host); err == nil || q.host != strings.TrimSuffix(strings.ToLower(host), ".") || len(q.host) > 253 {
			t.Fatalf("%q is %+v", host, q)
		}
		labels := strings.Split(q.host, ".")
		for _, label := range labels {
			if label == "" || len(label) > 63 || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
				t.Fatalf("%q has the label %q", host, label)
			}
		}
		last := labels[len(labels)-1]
		if last == "localhost" || strings.Trim(last, "0123456789") == "" || strings.HasPrefix(last, "0x") && strings.Trim(last[2:], "0123456789abcdef") == "" {
			t.Fatalf("%q passes", host)
		}
		if (q.service != "") != (q.namespace != "" && !q.podAddr.IsValid()) || q.service == "" && !q.podAddr.IsValid() && !q.maybe {
			t.Fatalf("%q is %+v", host, q)
		}
	})
}
