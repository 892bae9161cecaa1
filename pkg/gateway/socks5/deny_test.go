// SPDX-License-Identifier: Apache-2.0

package socks5

import (
	"context"
	"net/http"
	"net/netip"
	"testing"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
	"github.com/fairlead-dev/fairlead/pkg/gateway/rules"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/destinations"
)

// renamed resolves each name to a destination of another one, as the name of Service kubernetes leads
// to the API server.
type renamed struct{ asked []string }

func (r *renamed) Resolve(_ context.Context, host string, port uint16) (gateway.Destination, error) {
	r.asked = append(r.asked, host)
	return gateway.Destination{Host: "192.0.2.1", Port: port, Kind: gateway.KindExternal, Addr: netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), port)}, nil
}

// TestDeniedAsSent: a host that a rule of --deny names is denied, whatever it leads to, and not looked up.
func TestDeniedAsSent(t *testing.T) {
	deny, err := destinations.ParseRules("kubernetes.default.svc,*.secret.example")
	if err != nil {
		t.Fatal(err)
	}
	allow, err := destinations.ParseRules("192.0.2.1")
	if err != nil {
		t.Fatal(err)
	}
	r := &renamed{}
	w := newWorld(t, func(_ *world, cfg *Config) {
		cfg.Resolver, cfg.Authorizer = r, &rules.Authorizer{Allow: allow, Deny: deny}
	})
	for _, to := range []string{"kubernetes.default.svc:443", "KUBERNETES.default.svc.:443", "db.secret.example:5432"} {
		if status := connectStatus(t, w.addr, to); status != http.StatusForbidden {
			t.Errorf("CONNECT %s: status %d", to, status)
		}
	}
	if len(r.asked) != 0 {
		t.Errorf("looked up %q", r.asked)
	}
	if connectStatus(t, w.addr, "other.example:443"); len(r.asked) != 1 {
		t.Errorf("looked up %q, want the host that no rule denies", r.asked)
	}
}
