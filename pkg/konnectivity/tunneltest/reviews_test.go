// SPDX-License-Identifier: Apache-2.0

package tunneltest

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/h2"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/link"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
)

// introduce introduces an agent with a token, from an address of this machine, and does not
// wait for the answer.
func introduce(t *testing.T, r *Rig, from, token string, upstreamOnly bool) *tls.Conn {
	t.Helper()
	cfg, err := r.AgentTLSConfig()()
	if err != nil {
		t.Fatal(err)
	}
	cfg.NextProtos = []string{link.ALPN}
	if upstreamOnly {
		cfg.NextProtos = []string{"h2"}
	}
	raw, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).Dial("tcp", r.AgentTLS)
	if err != nil {
		t.Fatal(err)
	}
	nc := tls.Client(raw, cfg)
	t.Cleanup(func() { _ = nc.Close() })
	if err := nc.Handshake(); err != nil {
		t.Fatal(err)
	}
	if upstreamOnly {
		s, _ := openRogue(t, nc, "/AgentService/Connect", h2.Field{Name: "agentid", Value: "stranger"},
			h2.Field{Name: "authorization", Value: "Bearer " + token})
		s.Flush()
		return nc
	}
	go func() {
		_, _ = link.SendHello(nc, link.Hello{AgentID: "stranger", Token: token, Window: 1 << 16})
	}()
	return nc
}

// TestWrongTokensOfOneHost: one host shows more wrong tokens than the API server may be
// asked about in the time for a handshake. An agent of another host gets in all the same.
func TestWrongTokensOfOneHost(t *testing.T) {
	t.Parallel()
	for _, upstreamOnly := range []bool{false, true} {
		t.Run(fmt.Sprintf("upstream=%v", upstreamOnly), func(t *testing.T) {
			t.Parallel()
			_, tokens := startReviewer(t, 2) // after the first 10, all tokens take one and a half minutes
			r := NewRig(t, server.Config{Tokens: tokens, Protocol: Only(upstreamOnly), HandshakeTimeout: 3 * Patience})
			for i := range 200 {
				introduce(t, r, "127.0.0.2", fmt.Sprint("wrong-", i), upstreamOnly)
			}
			a := r.LaunchAgent(agent.Config{Token: func() (string, error) { return "good", nil }, ConnectTimeout: 3 * Patience}, "")
			Eventually(t, Patience, "the agent is in before all wrong tokens are reviewed", a.Ready)
		})
	}
}

// unanswered reviews any but the good token for as long as it may, and tells when that is over.
type unanswered struct{ asked, over chan string }

func (e unanswered) Check(ctx context.Context, peer, token string) (string, error) {
	if token == "good" {
		return "", nil
	}
	e.asked <- peer
	<-ctx.Done()
	e.over <- peer
	return "", ctx.Err()
}

// TestReviewEndsWithAgent: a token is reviewed no longer when the agent that showed it has
// gone, and the room that it had is another's.
func TestReviewEndsWithAgent(t *testing.T) {
	t.Parallel()
	for _, upstreamOnly := range []bool{false, true} {
		t.Run(fmt.Sprintf("upstream=%v", upstreamOnly), func(t *testing.T) {
			check := unanswered{make(chan string, 1), make(chan string, 1)}
			r := NewRig(t, server.Config{Tokens: check, Protocol: Only(upstreamOnly), HandshakeTimeout: time.Hour, MaxAgents: 1})
			nc := introduce(t, r, "127.0.0.1", "any", upstreamOnly)
			peer := <-check.asked
			if want := nc.LocalAddr().String(); peer != want {
				t.Errorf("the review is for %s, want %s", peer, want)
			}
			_ = nc.Close()
			select {
			case <-check.over:
			case <-time.After(Patience):
				t.Fatal("the review goes on")
			}
			r.StartAgent(agent.Config{Token: func() (string, error) { return "good", nil }}, "")
		})
	}
}

// TestTalksBeforeWelcome: an agent that sends something while its token is reviewed breaks
// the protocol, and is refused at once.
func TestTalksBeforeWelcome(t *testing.T) {
	t.Parallel()
	check := unanswered{make(chan string, 1), make(chan string, 1)}
	said := &logs{}
	r := NewRig(t, server.Config{Logger: said.logger(), Tokens: check, HandshakeTimeout: time.Hour})
	nc := introduce(t, r, "127.0.0.1", "any", false)
	<-check.asked
	if _, err := nc.Write(make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	said.wantOneOf(t, `reason="handshake"`, nc.LocalAddr().String(), "before it is welcome")
	wantEnd(t, nc)
}
