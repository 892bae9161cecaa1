// SPDX-License-Identifier: Apache-2.0

package dial

import (
	"encoding/hex"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
	"github.com/fairlead-dev/fairlead/pkg/internal/traceparent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunneltest"
)

const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// TestDirectTrace: a konnectivity-server continues the client's trace in both modes, and gets no context without a trace.
func TestDirectTrace(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{ModeHTTPConnect, ModeGRPC} {
		t.Run(mode, func(t *testing.T) {
			col := tunneltest.StartCollector(t)
			tracer, end := col.Tracer(t, "server")
			rig := tunneltest.NewRig(t, server.Config{Tracer: tracer})
			rig.StartAgent(agent.Config{}, "")
			o := DirectOptions{Socket: rig.Connect, Mode: mode}
			if mode == ModeGRPC {
				o.Socket = rig.GRPC
			}
			d := newDialer(t, ViaDirect, Options{Direct: o})
			to := address(gateway.KindNode, "127.0.0.1", listen(t, echo))
			want := traceparent.Parse(parent)
			c, err := d.Dial(traceparent.With(t.Context(), want), to)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			ping(t, mustDial(t, d, to), "untraced")
			end()
			const name = "server: konnectivity-server dial"
			s := col.Get(name)
			if len(col.All(name)) != 1 || string(s.TraceId) != string(want.TraceID[:]) || string(s.ParentSpanId) != string(want.SpanID[:]) {
				t.Errorf("%d spans of two dials; trace %s, parent %s, want one of %s", len(col.All(name)), hex.EncodeToString(s.TraceId), hex.EncodeToString(s.ParentSpanId), want)
			}
		})
	}
}

// TestAPITrace: the request for a connection has the client's trace context.
func TestAPITrace(t *testing.T) {
	t.Parallel()
	s, d := newTunnelAPI(t, Options{}, anAgent("a1", "n1", metav1.ConditionTrue))
	c, err := d.Dial(traceparent.With(t.Context(), traceparent.Parse(parent)), gateway.Destination{Host: "example.org", Port: 443, Kind: gateway.KindExternal})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	if got := s.header[len(s.header)-1].Get(traceparent.Header); got != parent {
		t.Errorf("%q is sent on as %q", parent, got)
	}
}
