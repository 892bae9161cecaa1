// SPDX-License-Identifier: Apache-2.0

package upstream_test

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tunnel/sinktest"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/upstream"
)

// modelConn is a connection of TestModel and what its ends have sent.
type modelConn struct {
	ends [2]*sinktest.Sink // the server's and the agent's
	sent [2][]byte
	key  byte
	// closed and reset are the end that closed or reset the connection; -1 means neither did.
	closed, reset int
	ordered       bool // the reset comes after the data
	slow          bool // an end was slow for a time, which may have cost it the connection
}

func (c *modelConn) over() bool { return c.closed >= 0 || c.reset >= 0 }

// step performs one operation on one end, as the schedule says.
func (c *modelConn) step(rt *rapid.T) {
	i := rapid.IntRange(0, 1).Draw(rt, "end")
	e := c.ends[i]
	switch op := rapid.IntRange(0, 9).Draw(rt, "op"); {
	case op <= 4 && !c.over():
		p := make([]byte, rapid.IntRange(1, 100_000).Draw(rt, "bytes"))
		for k := range p {
			p[k] = byte(len(c.sent[i])+k)*7 ^ c.key ^ byte(i)
		}
		if !e.SendAll(p) {
			rt.Fatal("the window stays shut")
		}
		c.sent[i] = append(c.sent[i], p...)
	case op == 5:
		e.Consume()
	case op == 6 && !c.over() && rapid.Bool().Draw(rt, "close"):
		c.closed = i
		e.Stream().Close()
	case op == 7 && !c.over() && rapid.Bool().Draw(rt, "reset"):
		c.reset = i
		c.ordered = rapid.Bool().Draw(rt, "behind what was sent")
		e.Stream().Reset("by the test", c.ordered)
	case op == 8:
		e.SetSlow(!e.Slow())
		c.slow = true
		e.Consume()
	default:
		time.Sleep(time.Duration(rapid.IntRange(0, 200).Draw(rt, "us")) * time.Microsecond)
	}
}

// ended reports whether an end knows that the connection has ended.
func ended(e *sinktest.Sink) bool {
	_, ended, _, err := e.State()
	return ended || err != nil
}

// judge compares what arrived with what was sent. After an orderly close, all of it arrives at the end that
// did not close. Otherwise a prefix of it arrives.
func (c *modelConn) judge(rt *rapid.T, cut bool) {
	for i, e := range c.ends {
		got, want := e.Got(), c.sent[1-i]
		_, _, _, err := e.State()
		switch {
		case cut || c.slow && (errors.Is(err, upstream.ErrOverflow) || ended(c.ends[1-i])):
		case c.closed == 1-i && (err != nil || len(got) != len(want)), c.reset == 1-i && c.ordered && len(got) != len(want):
			rt.Fatalf("the other end sent %d bytes, and was closed or reset; end %d got %d, then %v", len(want), i, len(got), err)
		}
		if !bytes.HasPrefix(want, got) {
			rt.Fatalf("end %d got %d bytes that are no beginning of the %d that were sent", i, len(got), len(want))
		}
	}
}

// TestModel checks random schedules. Bytes arrive in order and on their own connection, all of them before an
// orderly close. A refused or canceled dial, a reset and a receiver that exceeds its limit affect no other
// connection. The end of the stream ends all connections, and nothing is left.
func TestModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		limit := upstream.Config{ConnBuffer: 256 << 10, HoldClose: 5 * time.Millisecond}
		p := newPair(t, limit, limit)
		var all []*modelConn
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			switch op := rapid.IntRange(0, 15).Draw(rt, "what"); {
			case len(all) == 0 || op == 0 && len(all) < 6:
				s, a := p.open(t, false)
				all = append(all, &modelConn{ends: [2]*sinktest.Sink{s, a}, key: byte(2 * len(all)), closed: -1, reset: -1})
			case op == 1:
				p.refused(t, rt)
			case op == 2:
				p.canceled(t, rt)
			default:
				all[rapid.IntRange(0, len(all)-1).Draw(rt, "connection")].step(rt)
			}
		}
		cut := rapid.IntRange(0, 4).Draw(rt, "cut") == 0
		for _, c := range all {
			if !c.over() && !cut {
				c.closed = rapid.IntRange(0, 1).Draw(rt, "closes")
				c.ends[c.closed].Stream().Close()
			}
		}
		if cut {
			p.ha.Close()
		}
		for _, c := range all {
			for i, e := range c.ends {
				e.SetSlow(false)
				e.Consume()
				if c.closed != i && c.reset != i {
					sinktest.Eventually(rt, "an end arrives", func() bool { return ended(e) })
				}
			}
			c.judge(rt, cut)
		}
		sinktest.Eventually(rt, "nothing is left", func() bool { return p.server.Len() == 0 && p.agent.Len() == 0 })
		p.close()
	})
}

// refused dials an address that the agent refuses.
func (p *pair) refused(t *testing.T, rt *rapid.T) {
	e := sinktest.NewSink(nil, false)
	if _, err := p.server.Dial("refused", e); err != nil {
		t.Fatal(err)
	}
	<-e.Answered
	if e.DialErr() == nil {
		rt.Fatal("a refused dial has succeeded")
	}
}

// canceled dials and gives the dial up before or while it is answered.
func (p *pair) canceled(t *testing.T, rt *rapid.T) {
	address := rapid.SampledFrom([]string{"pending", "x:1"}).Draw(rt, "address")
	st, err := p.server.Dial(address, sinktest.NewSink(nil, false))
	if err != nil {
		t.Fatal(err)
	}
	if address != "pending" {
		defer func() { <-p.come }() // the agent has accepted it
	}
	time.Sleep(time.Duration(rapid.IntRange(0, 300).Draw(rt, "us before it is canceled")) * time.Microsecond)
	st.Reset("canceled", false)
}
