package server

import (
	"container/list"
	"context"
	"sync"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/sock"
)

// turns bounds how many agents' TLS handshakes compute at a time, to as many as there are
// processors. The others wait in two lines, those with an answer in the first. Without it,
// thousands of agents that come at once would all make progress together: dials would
// wait behind all of them, and if the machine cannot serve all before the first gives up,
// all would give up and begin again.
type turns struct {
	mu            sync.Mutex
	free          int
	answered, new list.List // of chan struct{}, closed for who gets a turn
}

func newTurns(n int) *turns { return &turns{free: n} }

// take waits for a turn, in the first line if the server has paid for an answer already.
func (t *turns) take(ctx context.Context, answered bool) error {
	t.mu.Lock()
	if t.free > 0 {
		t.free--
		t.mu.Unlock()
		return nil
	}
	line := &t.new
	if answered {
		line = &t.answered
	}
	mine := make(chan struct{})
	place := line.PushBack(mine)
	t.mu.Unlock()
	select {
	case <-mine:
		return nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case <-mine: // at the same moment
		t.passLocked()
	default:
		line.Remove(place)
	}
	return ctx.Err()
}

// pass gives a turn to who is next.
func (t *turns) pass() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.passLocked()
}

func (t *turns) passLocked() {
	for _, line := range []*list.List{&t.answered, &t.new} {
		if first := line.Front(); first != nil {
			close(line.Remove(first).(chan struct{}))
			return
		}
	}
	t.free++
}

// turn is that of one handshake. It is held while that computes and not while it waits
// for its peer, who may be slow or hostile. All methods are called by one goroutine.
type turn struct {
	of       *turns
	ctx      context.Context //nolint:containedctx // of the handshake, which calls through net.Conn
	answered bool
	first    int // turns that it waited for in the first line
	held     bool
	over     bool
}

// maxFirst is how many turns a handshake gets that goes first: what comes behind the
// server's answer takes one or two. Each segment takes one, and a hostile peer can send
// its bytes one by one.
const maxFirst = 8

// Waits implements link.Gate.
func (t *turn) Waits() {
	if t.held {
		t.held = false
		t.of.pass()
	}
}

// Answers implements link.Gate.
func (t *turn) Answers() {
	t.answered = true
	t.Waits()
}

// Computes implements link.Gate.
func (t *turn) Computes() error {
	if t.over || t.held {
		return nil
	}
	first := t.answered && t.first < maxFirst
	if err := t.of.take(t.ctx, first); err != nil {
		return err
	}
	if t.held = true; first {
		t.first++
	}
	sock.Breathe() // what else is to be done goes first
	return nil
}

// end is called after the handshake, which needs no turn any more.
func (t *turn) end() {
	t.Waits()
	t.over = true
}
