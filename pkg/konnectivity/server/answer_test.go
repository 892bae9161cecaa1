// SPDX-License-Identifier: Apache-2.0

package server

import (
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
