// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/link"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tunnel"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tunnel/sinktest"
)

// TestDeafAgent checks a dial to an agent that cannot be reading, because too many dials
// already wait for it. The dial fails at once with that reason. It does not wait for another
// agent, and the error does not blame the server.
func TestDeafAgent(t *testing.T) {
	s := New(Config{MaxPending: 1 << 20}, NewMetrics())
	defer stopNow(t, s)
	near, far := net.Pipe()
	defer far.Close()
	l := link.New(near, 1<<20, link.Config{})
	defer l.Close()
	s.reg.add(&Backend{agentID: "stuck", link: l, dials: map[*attempt]time.Time{}})
	address := strings.Repeat("x", maxAddress)
	go s.Dial(address, sinktest.NewSink(nil, true)) // this dial is being written
	if _, err := far.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	for n := 0; ; n++ {
		sink := sinktest.NewSink(nil, true)
		s.Dial(address, sink)
		select {
		case <-sink.Answered:
		default:
			if n > 10_000 {
				t.Fatal("dials are kept without a bound")
			}
			continue
		}
		var de *tunnel.DialError
		if err := sink.DialErr(); !errors.As(err, &de) || de.Code != tunnel.CodeLimit || !strings.Contains(de.Message, `"stuck" does not read`) {
			t.Errorf("after %d dials: %v", n, err)
		}
		break
	}
}

// TestRoomInBetween checks that a dial continues if its agent was full when the dial was
// tried, and has room again when the server looks for the cause.
func TestRoomInBetween(t *testing.T) {
	s := New(Config{}, NewMetrics())
	defer stopNow(t, s)
	near, far := net.Pipe()
	defer far.Close()
	l := link.New(near, 1<<20, link.Config{})
	defer l.Close()
	s.reg.add(&Backend{agentID: "a", link: l, most: 1, dials: map[*attempt]time.Time{}})
	sink := sinktest.NewSink(nil, true)
	p := &Pending{s: s, address: "192.0.2.1:1", user: sink, start: time.Now().Add(-time.Minute)} // has waited long enough
	if !p.none() {
		t.Error("the agent is not asked")
	}
}

// stopNow ends a server without waiting for anything.
func stopNow(t testing.TB, s *Server) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.Shutdown(ctx)
}

// TestKeysOfOwners checks that, where the owner is known, no agent gets another owner's key,
// whatever its ID is, and no owner has a second key.
func TestKeysOfOwners(t *testing.T) {
	victim := &Backend{agentID: "a", ids: Identifiers{owner: "n", owned: true}}
	for _, b := range []*Backend{
		{agentID: "a", ids: Identifiers{owner: "m", owned: true}},
		{agentID: "a", ids: Identifiers{owned: true}},
		{agentID: victim.key(), ids: Identifiers{owned: true}},
		{agentID: victim.key(), ids: Identifiers{owner: "m", owned: true}},
		{agentID: victim.key()},
		{agentID: "n"},
		{agentID: "a", ids: Identifiers{owner: victim.key(), owned: true}},
	} {
		if b.key() == victim.key() {
			t.Errorf("agent %q of %q has the key %s", b.agentID, b.ids.owner, b.key())
		}
	}
	if same := (&Backend{agentID: "b", ids: victim.ids}); same.key() != victim.key() {
		t.Errorf("another ID of the same owner has the key %s", same.key())
	}
}
