package server

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/link"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunnel"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunnel/tunneltest"
)

// TestDeafAgent: when so many dials wait for an agent that it cannot be reading, the next
// one is told so at once, and does not wait for another agent or blame this one's end.
func TestDeafAgent(t *testing.T) {
	s := New(Config{MaxPending: 1 << 20}, NewMetrics())
	defer stopNow(t, s)
	near, far := net.Pipe()
	defer far.Close()
	l := link.New(near, 1<<20, link.Config{})
	defer l.Close()
	s.reg.add(&Backend{agentID: "deaf", link: l, dials: map[*attempt]time.Time{}})
	address := strings.Repeat("x", maxAddress)
	go s.Dial(address, tunneltest.NewSink(nil, true)) // is being written
	if _, err := far.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	for n := 0; ; n++ {
		sink := tunneltest.NewSink(nil, true)
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
		if err := sink.DialErr(); !errors.As(err, &de) || de.Code != tunnel.CodeLimit || !strings.Contains(de.Message, `"deaf" does not read`) {
			t.Errorf("after %d dials: %v", n, err)
		}
		break
	}
}

// TestRoomInBetween: a dial that has found its agent full, which is not any more when that is
// looked into, goes on.
func TestRoomInBetween(t *testing.T) {
	s := New(Config{}, NewMetrics())
	defer stopNow(t, s)
	near, far := net.Pipe()
	defer far.Close()
	l := link.New(near, 1<<20, link.Config{})
	defer l.Close()
	s.reg.add(&Backend{agentID: "a", link: l, most: 1, dials: map[*attempt]time.Time{}})
	sink := tunneltest.NewSink(nil, true)
	p := &Pending{s: s, address: "192.0.2.1:1", user: sink, start: time.Now().Add(-time.Minute)} // has waited long enough
	if !p.none() {
		t.Error("the agent is not asked")
	}
}

// stopNow ends a server without waiting for anything.
func stopNow(t *testing.T, s *Server) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.Shutdown(ctx)
}

// TestKeysOfCheckedClaims: where claims are checked, no agent has another's key, whatever it
// calls itself.
func TestKeysOfCheckedClaims(t *testing.T) {
	victim := &Backend{agentID: "a", ids: Identifiers{owner: "n", checked: true}}
	for _, b := range []*Backend{
		{agentID: "a", ids: Identifiers{owner: "m", checked: true}},
		{agentID: "a", ids: Identifiers{checked: true}},
		{agentID: victim.key(), ids: Identifiers{checked: true}},
		{agentID: victim.key(), ids: Identifiers{owner: "m", checked: true}},
	} {
		if b.key() == victim.key() {
			t.Errorf("agent %q of %q has the key %s", b.agentID, b.ids.owner, b.key())
		}
	}
	if same := (&Backend{agentID: "a", ids: victim.ids}); same.key() != victim.key() {
		t.Errorf("another connection of the same agent has the key %s", same.key())
	}
}
