// SPDX-License-Identifier: Apache-2.0

package connect

import (
	"context"
	"net"
	"net/http"
	"testing"

	"github.com/fairlead-dev/fairlead/pkg/apis/tunnel/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/internal/traceparent"
)

// TestTrace: a dial gets the trace context of the client's request.
func TestTrace(t *testing.T) {
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	got := make(chan string, 1)
	w := newWorld(t, echo, func(c *Config) {
		inner := c.Dial
		c.Dial = func(ctx context.Context, a *v1alpha1.TunnelAgent, address string) (net.Conn, error) {
			got <- traceparent.From(ctx).String()
			return inner(ctx, a, address)
		}
	}, allRights...)
	if _, refusal := w.dialWith("alice", "svc.web.svc", 80, http.Header{"Traceparent": {parent}}); refusal != nil {
		t.Fatalf("%+v", refusal)
	}
	if c := <-got; c != parent {
		t.Errorf("the dial gets %q, want %q", c, parent)
	}
}
