package server

import (
	"slices"
	"testing"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/buf"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunnel"
)

// cutWhileTold is a frontend whose stream is cut while it is being told of it.
type cutWhileTold struct {
	at    *attempt
	calls []string
}

func (f *cutWhileTold) Dialed(tunnel.Stream, error) {
	f.at.Aborted(tunnel.ErrLinkClosed)
	f.calls = append(f.calls, "dialed")
}
func (f *cutWhileTold) Aborted(error)      { f.calls = append(f.calls, "aborted") }
func (f *cutWhileTold) Data(...*buf.Chunk) {}
func (f *cutWhileTold) End()               {}
func (f *cutWhileTold) Writable()          {}

// TestCutBehindAnswer: a link that ends while the answer to a dial is passed on ends
// the connection behind the answer. A gRPC client would wait for ever otherwise.
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

// TestEndBehindHeldData: the end of a connection waits for the last held chunk, which
// is out of the queue already while it is being sent.
func TestEndBehindHeldData(t *testing.T) {
	c := &grpcConn{letGo: true}
	ended := false
	c.whenKnown(func() { ended = true })
	if ended {
		t.Error("the end overtakes held data")
	}
	c.letGo = false // as at the end of clientKnows
	c.clientKnows()
	if !ended {
		t.Error("the end is lost")
	}
}
