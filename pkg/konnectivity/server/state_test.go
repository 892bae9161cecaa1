// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/state"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunneltest"
)

// echo sends n bytes through a connection and reads them back.
func echo(t *testing.T, c net.Conn, n int) {
	t.Helper()
	_ = c.SetDeadline(time.Now().Add(tunneltest.Patience))
	if _, err := c.Write(make([]byte, n)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, n)); err != nil {
		t.Fatal(err)
	}
}

// podTokens accepts tokens that say themselves what they are bound to.
type podTokens struct{}

func (p podTokens) Check(ctx context.Context, peer, token string) (string, error) {
	node, _, err := p.CheckPod(ctx, peer, token)
	return node, err
}

func (podTokens) CheckPod(_ context.Context, _, token string) (node, pod string, err error) {
	node, pod, _ = strings.Cut(token, "/")
	return node, pod, nil
}

// TestState: the server shows each link with what the agent sent, what its token is bound to, and with counts of dials, failures, open connections
// and bytes, and each connection with its destination and bytes, in pages. What has ended is not shown.
func TestState(t *testing.T) {
	for _, upstreamOnly := range []bool{false, true} {
		name := map[bool]string{false: state.ProtocolFairlead, true: state.ProtocolUpstream}[upstreamOnly]
		t.Run(name, func(t *testing.T) { testState(t, upstreamOnly, name) })
	}
}

func testState(t *testing.T, upstreamOnly bool, protocol string) {
	r := tunneltest.NewRig(t, server.Config{Protocol: tunneltest.Only(upstreamOnly), Tokens: podTokens{}})
	r.StartAgent(agent.Config{AgentID: "one", Identifiers: "host=a&ipv4=192.0.2.1&default-route=true", Token: func() (string, error) { return "node-1/pod-1", nil }}, "")
	target := tunneltest.Target(t, tunneltest.Echo)
	dial := tunneltest.Connect(r.Connect)
	var conns []net.Conn
	for range 3 {
		c, err := dial(t.Context(), target)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		conns = append(conns, c)
	}
	if c, err := dial(t.Context(), "127.0.0.1:1"); err == nil {
		c.Close()
		t.Fatal("dialed a port that is closed")
	}
	echo(t, conns[1], 1000)

	st := r.Server.State()
	if len(st.Links) != 1 || st.Server.ID != "test-server" || !st.Server.Ready || st.Server.Connections != 3 {
		t.Fatalf("state: %+v", st)
	}
	l := st.Links[0]
	type counts struct {
		ID, Owner, Pod, Protocol  string
		Identifiers               []string
		Open, Pending             int
		Dials, Failures, To, From int64
	}
	got := counts{l.AgentID, l.Owner, l.Pod, l.Protocol, l.Identifiers, l.OpenConnections, l.PendingDials, l.DialsTotal, l.DialFailures, l.BytesToAgent, l.BytesFromAgent}
	want := counts{"one", "node-1", "pod-1", protocol, []string{"host=a", "ipv4=192.0.2.1", "default-route=true"}, 3, 0, 4, 1, 1000, 1000}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("link (-want +got):\n%s", diff)
	}
	if l.Since.Before(st.Server.Started) || l.Since.After(st.Time) {
		t.Errorf("since %v, server since %v, now %v", l.Since, st.Server.Started, st.Time)
	}
	pages(t, r, target)
	conns[0].Close()
	tunneltest.Eventually(t, tunneltest.Patience, "the closed connection is not shown", func() bool {
		return len(r.Server.Connections(0, 10).Connections) == 2
	})
}

// pages reads the three connections in pages of two. The second one has carried 1000 bytes each way.
func pages(t *testing.T, r *tunneltest.Rig, target string) {
	t.Helper()
	first := r.Server.Connections(0, 2)
	if len(first.Connections) != 2 || !first.More {
		t.Fatalf("first page: %+v", first)
	}
	second := r.Server.Connections(first.Connections[1].Serial, 2)
	if len(second.Connections) != 1 || second.More {
		t.Fatalf("second page: %+v", second)
	}
	for i, c := range append(first.Connections, second.Connections...) {
		bytes := map[bool]int64{true: 1000}[i == 1]
		if c.Destination != target || c.AgentID != "one" || c.BytesToAgent != bytes || c.BytesFromAgent != bytes || c.Since.IsZero() {
			t.Errorf("connection %d: %+v", i, c)
		}
	}
}
