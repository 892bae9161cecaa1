// SPDX-License-Identifier: Apache-2.0

package server

import (
	"container/list"
	"context"
	"net"
	"sync"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/netx"
)

// turns limits how many TLS handshakes, of agents or of frontends, compute at a time to the number of CPUs.
// The others wait in two queues, those that the server has already answered in the first.
// Without this limit, thousands of agents that connect at once would all make progress
// together. Dials would wait for all of them, and if the machine cannot serve all before
// the first one gives up, all would give up and start again.
type turns struct {
	mu            sync.Mutex
	free          int
	answered, new list.List // queues of chan struct{}, which is closed for the handshake that gets a turn
}

func newTurns(n int) *turns { return &turns{free: n} }

// take waits for a turn, in the first queue if the server has already spent the work for
// an answer.
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
	case <-mine: // the turn came at the same moment
		t.passLocked()
	default:
		line.Remove(place)
	}
	return ctx.Err()
}

// pass gives a turn to the next handshake.
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

// turn is the turn of one handshake.
type turn struct {
	of       *turns
	ctx      context.Context //nolint:containedctx // of the handshake, which calls through net.Conn
	answered bool
	first    int // turns that it waited for in the first queue
	held     bool
	over     bool
}

// maxFirst is how many turns a handshake gets through the first queue. What follows the
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
	if t.over {
		return
	}
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
	netx.PollNetwork() // other pending work goes first
	return nil
}

// end is called after the handshake, which no longer needs a turn.
func (t *turn) end() {
	t.Waits()
	t.over = true
}

// turnConn is the connection below the TLS of a frontend, for as long as its handshake takes turns.
type turnConn struct {
	net.Conn
	turn *turn
}

// NetConn returns the wrapped connection.
func (c *turnConn) NetConn() net.Conn { return c.Conn }

func (c *turnConn) Read(p []byte) (int, error) {
	c.turn.Waits()
	n, err := c.Conn.Read(p)
	if err == nil {
		err = c.turn.Computes()
	}
	return n, err
}

func (c *turnConn) Write(p []byte) (int, error) {
	c.turn.Answers()
	return c.Conn.Write(p)
}
