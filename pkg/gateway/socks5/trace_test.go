// SPDX-License-Identifier: Apache-2.0

package socks5

import (
	"context"
	"net/netip"
	"testing"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
	"github.com/fairlead-dev/fairlead/pkg/internal/traceparent"
)

// TestTrace: a dial gets the trace context of its CONNECT request, and none if the header is missing or malformed.
func TestTrace(t *testing.T) {
	t.Parallel()
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	got := make(chan string, 1)
	w := newWorld(t, anonymous, func(w *world, _ *Config) {
		w.dial = func(ctx context.Context, _ gateway.Destination) (gateway.Conn, error) {
			got <- traceparent.From(ctx).String()
			return nil, gateway.Errorf(gateway.ReasonRefused, "", "as far as this test goes")
		}
	})
	w.name("echo.default", netip.MustParseAddrPort("192.0.2.1:7"))
	for header, want := range map[string]string{"Traceparent: " + parent + "\r\n": parent, "": "", "Traceparent: " + parent + "0\r\n": ""} {
		talk(t, w.addr, "CONNECT echo.default:7 HTTP/1.1\r\n"+header+"\r\n"+sentAhead)
		select {
		case c := <-got:
			if c != want {
				t.Errorf("header %q: the dial gets %q", header, c)
			}
		default:
			t.Errorf("header %q: no dial", header)
		}
	}
}
