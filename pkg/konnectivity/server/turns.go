package server

import (
	"context"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/sock"
)

// turns bounds how many agents' TLS handshakes compute at a time, to as many as there are
// processors. The others wait in a line. Without it, thousands of agents that come at once
// would all make progress together: dials would wait behind all of them, and if the
// machine cannot serve all before the first gives up, all would give up and begin again.
type turns chan struct{}

// turn is that of one handshake. It is held while that computes and not while it waits
// for its peer, who may be slow or hostile. All methods are called by one goroutine.
type turn struct {
	of   turns
	ctx  context.Context //nolint:containedctx // of the handshake, which calls through net.Conn
	held bool
	over bool
}

// Waits implements link.Gate.
func (t *turn) Waits() {
	if t.held {
		t.held = false
		<-t.of
	}
}

// Computes implements link.Gate.
func (t *turn) Computes() error {
	if t.over || t.held {
		return nil
	}
	select {
	case t.of <- struct{}{}:
		t.held = true
		sock.Breathe() // what else is to be done goes first
		return nil
	case <-t.ctx.Done():
		return t.ctx.Err()
	}
}

// end is called behind the handshake, which needs no turn any more.
func (t *turn) end() {
	t.Waits()
	t.over = true
}
