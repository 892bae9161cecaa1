// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"slices"
	"testing"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/buffer"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tunnel"
)

// cutWhileTold is a frontend whose stream is cut while the server delivers the answer
// to its dial.
type cutWhileTold struct {
	at    *attempt
	calls []string
}

func (f *cutWhileTold) Dialed(tunnel.Stream, error) {
	f.at.Aborted(tunnel.ErrLinkClosed)
	f.calls = append(f.calls, "dialed")
}
func (f *cutWhileTold) Aborted(error)         { f.calls = append(f.calls, "aborted") }
func (f *cutWhileTold) Data(...*buffer.Chunk) {}
func (f *cutWhileTold) End()                  {}
func (f *cutWhileTold) Writable()             {}

// TestCutBehindAnswer checks that, if a link ends while the server delivers the
// answer to a dial, the connection ends after the answer. Otherwise a gRPC client
// would wait for ever.
func TestCutBehindAnswer(t *testing.T) {
	s := New(Config{}, NewMetrics())
	defer stopNow(t, s)
	f := &cutWhileTold{}
	p := &Pending{s: s, user: f}
	f.at = &attempt{p: p, b: &Backend{}}
	p.cur = f.at
	f.at.Dialed(nil, nil)
	if want := []string{"dialed", "aborted"}; !slices.Equal(f.calls, want) {
		t.Errorf("the frontend was called %v, want %v", f.calls, want)
	}
}

// resetStream is a stream that counts its resets.
type resetStream struct {
	tunnel.Stream
	resets int
}

func (s *resetStream) Reset(string, bool) { s.resets++ }

// TestCancelBeforeAnswer checks that a stream whose dial is canceled while its answer is handed on is reset at once: data that the agent has
// sent behind the answer would come to a frontend without a stream.
func TestCancelBeforeAnswer(t *testing.T) {
	s := New(Config{}, NewMetrics())
	defer stopNow(t, s)
	p := &Pending{s: s, user: &cutWhileTold{}, done: true} // as Cancel and timeout leave it
	at := &attempt{p: p, b: &Backend{}, dialed: true}
	st := &resetStream{}
	at.tell(st)
	if st.resets != 1 {
		t.Errorf("the stream was reset %d times, want once", st.resets)
	}
}

// TestFailureHasText checks that clients of gRPC get a text with each failed dial: without one they would take it for success.
func TestFailureHasText(t *testing.T) {
	s := New(Config{}, NewMetrics())
	defer stopNow(t, s)
	f := &failed{}
	p := &Pending{s: s, user: f}
	at := &attempt{p: p, b: &Backend{}}
	p.cur = at
	at.Dialed(nil, &tunnel.DialError{Code: tunnel.CodeOther})
	var de *tunnel.DialError
	if !errors.As(f.err, &de) || de.Message == "" {
		t.Errorf("the frontend gets %v, want a text", f.err)
	}
}

// failed is a frontend that keeps the error of its dial.
type failed struct {
	cutWhileTold
	err error
}

func (f *failed) Dialed(_ tunnel.Stream, err error) { f.err = err }

// TestEndBehindHeldData checks that the end of a connection waits for the last held
// chunk, which has left the queue but is still being sent.
func TestEndBehindHeldData(t *testing.T) {
	c := &grpcConn{hold: holdDraining}
	ended := false
	c.whenKnown(func() { ended = true })
	if ended {
		t.Error("the end overtakes held data")
	}
	c.hold = holdUntried // frontendKnows runs to its end
	c.frontendKnows()
	if !ended {
		t.Error("the end is lost")
	}
}
