// SPDX-License-Identifier: Apache-2.0

package tunneltest

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/settings"
)

// revocable accepts all tokens but those that were revoked.
type revocable struct {
	mu      sync.Mutex
	revoked map[string]bool
	used    map[string]bool // tokens that were accepted
	failing error           // of reviews

	asking, together atomic.Int64 // reviews under way, and the most of them so far
}

var errRevoked = errors.New("token was revoked")

func (v *revocable) Check(_ context.Context, _, token string) (string, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.revoked[token] {
		return "", errRevoked
	}
	if v.used == nil {
		v.used = map[string]bool{}
	}
	v.used[token] = true
	return "", nil
}

// accepted reports whether a token was accepted.
func (v *revocable) accepted(token string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.used[token]
}

func (v *revocable) Review(ctx context.Context, token string) (refused, err error) {
	if n := v.asking.Add(1); n > v.together.Load() {
		v.together.Store(n)
	}
	defer v.asking.Add(-1)
	v.mu.Lock()
	failing := v.failing
	v.mu.Unlock()
	if failing != nil {
		return nil, failing
	}
	_, refused = v.Check(ctx, "", token)
	return refused, nil
}

func (v *revocable) revoke(token string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.revoked == nil {
		v.revoked = map[string]bool{}
	}
	v.revoked[token] = true
}

// reviewed starts a server that reviews the tokens of connected agents often.
func reviewed(t *testing.T, v *revocable, upstreamOnly bool, said *logs) *Rig {
	t.Helper()
	return NewRig(t, server.Config{Tokens: v, Protocol: Only(upstreamOnly), ReviewInterval: 200 * time.Millisecond, ExpelGrace: 300 * time.Millisecond,
		AgentWait: Patience, Logger: said.logger()})
}

func token(s string) func() (string, error) { return func() (string, error) { return s, nil } }

// expelledLinks is how many links of a protocol were drained for their token.
func expelledLinks(r *Rig, upstreamOnly bool) float64 {
	protocol := map[bool]string{false: "fairlead", true: "upstream"}[upstreamOnly]
	return Metric(r.Metrics.Registry, `fairlead_tunnel_server_links_expelled_total{protocol="`+protocol+`"}`)
}

// TestRevokedAgentIsDrained: an agent whose token is revoked while it is connected gets no
// more dials and does not get in again. What it carries goes on to its end, then its
// connection ends. No dial fails meanwhile.
func TestRevokedAgentIsDrained(t *testing.T) {
	t.Parallel()
	for _, upstreamOnly := range []bool{false, true} {
		t.Run(fmt.Sprintf("upstream=%v", upstreamOnly), func(t *testing.T) {
			t.Parallel()
			v, said := &revocable{}, &logs{}
			r := reviewed(t, v, upstreamOnly, said)
			out := r.StartAgent(agent.Config{AgentID: "out", Token: token("out")}, "")
			addr := Target(t, Echo)
			held := MustDial(t, Connect(r.Connect), addr)
			stays := r.StartAgent(agent.Config{AgentID: "stays", Token: token("stays")}, "")
			load := StartLoad(t, GRPC(r.GRPC), addr, 50)
			v.revoke("out")
			Eventually(t, Patience, "the link is drained", func() bool { return expelledLinks(r, upstreamOnly) == 1 })
			Eventually(t, Patience, "the agent is refused", func() bool {
				return upstreamOnly || Metric(r.Metrics.Registry, `fairlead_tunnel_server_agents_refused_total{reason="token"}`) > 0
			})
			time.Sleep(time.Second) // the grace, and a look of the server for links whose grace is over: no event tells
			load.NoneFailed(t)
			before := dialed(out)
			if before == 0 {
				t.Fatal("dials of the agent are not counted")
			}
			stays.Stop()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if c, err := Connect(r.Connect)(ctx, addr); err == nil {
				_ = c.Close()
				t.Error("a dial got an agent, though only the revoked one is left")
			}
			if n := dialed(out) - before; n != 0 {
				t.Errorf("the agent got %v dials after its grace", n)
			}
			if _, err := held.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
			if _, err := readFull(held, make([]byte, 1), Patience); err != nil {
				t.Errorf("what the agent carried was cut: %v", err)
			}
			if !r.Server.Connected("out") {
				t.Error("the link ended before its last connection")
			}
			_ = held.Close()
			Eventually(t, Patience, "the link has ended", func() bool { return !r.Server.Connected("out") && !out.Ready() })
			said.wantOneOf(t, "Draining the connection", `agent="out" address="127.0.0.1:`, errRevoked.Error())
		})
	}
}

// TestExpiredUpstreamAgentServes: an upstream agent cannot connect again while it is
// connected. One whose token has only expired goes on with dials that no other agent can
// carry, until it is idle; then its connection ends, and it is back with its new token.
func TestExpiredUpstreamAgentServes(t *testing.T) {
	t.Parallel()
	v, said := &revocable{}, &logs{}
	r := reviewed(t, v, true, said)
	var now atomic.Value
	old := "e30." + base64.RawURLEncoding.EncodeToString([]byte(`{"exp":1700000000}`)) + ".c2ln"
	now.Store(old)
	r.StartAgent(agent.Config{Token: func() (string, error) { return now.Load().(string), nil }}, "")
	addr := Target(t, Echo)
	held := MustDial(t, Connect(r.Connect), addr)
	now.Store("new")
	v.revoke(old)
	Eventually(t, Patience, "the link is drained", func() bool { return expelledLinks(r, true) == 1 })
	// That a projected token expires is normal: it is counted apart, and logged at level 5 only.
	for result, want := range map[string]float64{"expired": 1, "refused": 0} {
		if n := Metric(r.Metrics.Registry, `fairlead_tunnel_server_token_reviews_total{result="`+result+`"}`); n != want {
			t.Errorf("%v reviews are counted as %s, want %v", n, result, want)
		}
	}
	if lines := said.logged("Draining the connection"); len(lines) != 0 {
		t.Errorf("logged %q", lines)
	}
	time.Sleep(time.Second) // the grace, and a look of the server for links whose grace is over: no event tells
	if ready, why := r.Server.Ready(); !ready {
		t.Errorf("the server is not ready, though the agent takes dials: %s", why)
	}
	ctx, cancel := context.WithTimeout(t.Context(), Patience/2)
	defer cancel()
	c, err := Connect(r.Connect)(ctx, addr)
	if err != nil {
		t.Fatalf("dial while the only agent is drained: %v", err)
	}
	_ = c.Close()
	_ = held.Close()
	Eventually(t, Patience, "the agent is back", func() bool {
		return connected(r) == 1 && Metric(r.Metrics.Registry, `fairlead_tunnel_server_token_checks_total{result="accepted"}`) >= 2
	})
	_ = MustDial(t, Connect(r.Connect), addr).Close()
}

// TestLastResortEnds: an upstream agent that has no new token, and carries a connection all the
// time, gets no dials any more after a while. Its token may have been revoked as well: an
// expired one does not tell.
func TestLastResortEnds(t *testing.T) {
	t.Parallel()
	v, said := &revocable{}, &logs{}
	r := NewRig(t, server.Config{Tokens: v, Protocol: settings.ProtocolUpstream, ReviewInterval: 200 * time.Millisecond, ExpelGrace: 300 * time.Millisecond,
		LastResort: time.Second, AgentWait: 100 * time.Millisecond, Logger: said.logger()})
	old := "e30." + base64.RawURLEncoding.EncodeToString([]byte(`{"exp":1700000000}`)) + ".c2ln"
	r.StartAgent(agent.Config{Token: token(old)}, "")
	addr := Target(t, Echo)
	held := MustDial(t, Connect(r.Connect), addr)
	v.revoke(old)
	Eventually(t, Patience, "the link is drained", func() bool { return expelledLinks(r, true) == 1 })
	Eventually(t, Patience, "the agent gets no dial", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		c, err := Connect(r.Connect)(ctx, addr)
		if err == nil {
			_ = c.Close()
		}
		return err != nil
	})
	if _, err := held.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := readFull(held, make([]byte, 1), Patience); err != nil {
		t.Errorf("what the agent carried was cut: %v", err)
	}
}

// connected is the number of agents' connections.
func connected(r *Rig) float64 {
	return Metric(r.Metrics.Registry, `fairlead_tunnel_server_links{protocol="fairlead"}`) +
		Metric(r.Metrics.Registry, `fairlead_tunnel_server_links{protocol="upstream"}`)
}

func dialed(a *Agent) float64 {
	return Metric(a.Metrics.Registry, "konnectivity_network_proxy_agent_dial_duration_seconds_count")
}

// TestAgentWithRenewedToken: where the token of the only agent is no longer good and the
// agent has another one, it is back with that by itself, each time, and no dial fails.
func TestAgentWithRenewedToken(t *testing.T) {
	t.Parallel()
	for _, upstreamOnly := range []bool{false, true} {
		t.Run(fmt.Sprintf("upstream=%v", upstreamOnly), func(t *testing.T) {
			t.Parallel()
			v, said := &revocable{}, &logs{}
			r := reviewed(t, v, upstreamOnly, said)
			var now atomic.Value
			now.Store("token 0")
			a := r.StartAgent(agent.Config{Token: func() (string, error) { return now.Load().(string), nil }}, "")
			load := StartLoad(t, Connect(r.Connect), Target(t, Echo), 20)
			for i := range 3 {
				before := now.Load().(string)
				now.Store(fmt.Sprint("token ", i+1))
				v.revoke(before)
				Eventually(t, Patience, "the link is drained", func() bool { return expelledLinks(r, upstreamOnly) >= float64(i+1) })
				Eventually(t, Patience, "one link with the new token is left", func() bool {
					return a.Ready() && r.Server.Connected(a.ID) && connected(r) == 1 && v.accepted(now.Load().(string)) // an agent may try twice
				})
			}
			load.NoDialFailed(t)
		})
	}
}

// TestAllLinksWithRenewedToken: an agent with several links to a server, all of them
// drained and each with a connection to carry, has as many new links next to them.
func TestAllLinksWithRenewedToken(t *testing.T) {
	t.Parallel()
	const links = 3
	v, said := &revocable{}, &logs{}
	r := reviewed(t, v, false, said)
	var now atomic.Value
	now.Store("old")
	a := r.StartAgent(agent.Config{Links: links, Token: func() (string, error) { return now.Load().(string), nil }}, "")
	Eventually(t, Patience, "all links are there", func() bool { return connected(r) == links })
	addr := Target(t, Echo)
	var held []net.Conn
	for range 8 * links { // the server gives a dial to the link with the fewest
		held = append(held, MustDial(t, Connect(r.Connect), addr))
	}
	now.Store("new")
	v.revoke("old")
	Eventually(t, Patience, "all links are drained", func() bool { return expelledLinks(r, false) == links })
	Eventually(t, Patience, "all links are there again", func() bool { return connected(r) == 2*links })
	for _, c := range held {
		_ = c.Close()
	}
	Eventually(t, Patience, "the drained links have ended", func() bool { return connected(r) == links && a.Ready() })
}

// TestReviewsThatFail: while the API server does not answer, agents stay connected and the
// log has one line; one refusal alone expels none either.
func TestReviewsThatFail(t *testing.T) {
	t.Parallel()
	v, said := &revocable{failing: errors.New("API server is down")}, &logs{}
	r := reviewed(t, v, false, said)
	for i := range 10 {
		r.StartAgent(agent.Config{AgentID: fmt.Sprint("a-", i), Token: token("good")}, "")
	}
	count := func(result string) float64 {
		return Metric(r.Metrics.Registry, `fairlead_tunnel_server_token_reviews_total{result="`+result+`"}`)
	}
	Eventually(t, Patience, "reviews fail", func() bool { return count("failed") > 20 })
	if lines := said.logged("Cannot review tokens"); len(lines) != 1 {
		t.Errorf("logged %q, want one line", lines)
	}
	v.mu.Lock()
	v.failing = nil
	v.mu.Unlock()
	Eventually(t, Patience, "reviews go on", func() bool { return count("accepted") > 20 })
	if n := Metric(r.Metrics.Registry, `fairlead_tunnel_server_links{protocol="fairlead"}`); n != 10 || expelledLinks(r, false) != 0 {
		t.Errorf("%v links are left of 10, %v were drained", n, expelledLinks(r, false))
	}
	if n := v.together.Load(); n != 1 {
		t.Errorf("%d reviews of connected agents at a time, want 1: they must not keep new agents waiting", n)
	}
}

// TestReviewPassesByTheCache: a review asks the API server though the token was accepted a
// moment ago, and a token that it refuses is refused to new agents at once. An API server
// that fails has not refused anything.
func TestReviewPassesByTheCache(t *testing.T) {
	t.Parallel()
	v, tokens := startReviewer(t, reviewsPerSecond)
	tokens.Keep = time.Hour
	check := func() error { _, err := tokens.Check(t.Context(), "127.0.0.1:1", "good"); return err }
	if err := check(); err != nil {
		t.Fatal(err)
	}
	v.status.Store(500)
	if refused, err := tokens.Review(t.Context(), "good"); refused != nil || err == nil {
		t.Errorf("API server that fails: refused %v, error %v", refused, err)
	}
	v.status.Store(0)
	v.good.Store("another")
	if err := check(); err != nil {
		t.Errorf("accepted token is not remembered: %v", err)
	}
	if refused, err := tokens.Review(t.Context(), "good"); refused == nil || err != nil {
		t.Errorf("revoked token: refused %v, error %v", refused, err)
	}
	if check() == nil {
		t.Error("a token that a review refused is still accepted")
	}
}
