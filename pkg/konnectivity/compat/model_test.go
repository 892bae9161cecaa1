package compat_test

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/compat"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunnel/tunneltest"
)

// modelConn is a connection of TestModel and what its ends have sent.
type modelConn struct {
	ends [2]*tunneltest.Sink // the server's and the agent's
	sent [2][]byte
	key  byte
	// closed and reset are the end by which it was closed or reset; -1 is none.
	closed, reset int
	ordered       bool // the reset stands behind what was sent
	slow          bool // an end was slow for a time, and may have lost the connection for that
}

func (c *modelConn) over() bool { return c.closed >= 0 || c.reset >= 0 }

// step does something to one end as the schedule says.
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

// ended tells whether an end knows that the connection is over.
func ended(e *tunneltest.Sink) bool {
	_, ended, _, err := e.State()
	return ended || err != nil
}

// judge compares what has come with what was sent: all of it behind an orderly close,
// for the end that did not close; else a beginning.
func (c *modelConn) judge(rt *rapid.T, cut bool) {
	for i, e := range c.ends {
		got, want := e.Got(), c.sent[1-i]
		_, _, _, err := e.State()
		switch {
		case cut || c.slow && (errors.Is(err, compat.ErrOverflow) || ended(c.ends[1-i])):
		case c.closed == 1-i && (err != nil || len(got) != len(want)), c.reset == 1-i && c.ordered && len(got) != len(want):
			rt.Fatalf("the other end sent %d bytes, and was closed or reset; end %d got %d, then %v", len(want), i, len(got), err)
		}
		if !bytes.HasPrefix(want, got) {
			rt.Fatalf("end %d got %d bytes that are no beginning of the %d that were sent", i, len(got), len(want))
		}
	}
}

// TestModel: whatever the schedule, bytes arrive in order and on their own connection,
// all of them before an orderly close; a dial that is refused or cancelled, a reset and
// a receiver that holds more than it may harm no other connection; the end of the stream ends all; and nothing
// is left.
func TestModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		limit := compat.Config{ConnLimit: 256 << 10, HoldClose: 5 * time.Millisecond}
		p := newPair(t, limit, limit)
		var all []*modelConn
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			switch op := rapid.IntRange(0, 15).Draw(rt, "what"); {
			case len(all) == 0 || op == 0 && len(all) < 6:
				s, a := p.open(t, false)
				all = append(all, &modelConn{ends: [2]*tunneltest.Sink{s, a}, key: byte(2 * len(all)), closed: -1, reset: -1})
			case op == 1:
				p.refused(t, rt)
			case op == 2:
				p.cancelled(t, rt)
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
					tunneltest.Eventually(rt, "an end is told", func() bool { return ended(e) })
				}
			}
			c.judge(rt, cut)
		}
		tunneltest.Eventually(rt, "nothing is left", func() bool { return p.server.Len() == 0 && p.agent.Len() == 0 })
		p.close()
	})
}

// refused makes a dial that the agent refuses.
func (p *pair) refused(t *testing.T, rt *rapid.T) {
	e := tunneltest.NewSink(nil, false)
	if _, err := p.server.Dial("refused", e); err != nil {
		t.Fatal(err)
	}
	<-e.Answered
	if e.DialErr() == nil {
		rt.Fatal("a refused dial has succeeded")
	}
}

// cancelled makes a dial that is given up before or while it is answered.
func (p *pair) cancelled(t *testing.T, rt *rapid.T) {
	address := rapid.SampledFrom([]string{"pending", "x:1"}).Draw(rt, "address")
	st, err := p.server.Dial(address, tunneltest.NewSink(nil, false))
	if err != nil {
		t.Fatal(err)
	}
	if address != "pending" {
		defer func() { <-p.come }() // the agent has accepted it
	}
	time.Sleep(time.Duration(rapid.IntRange(0, 300).Draw(rt, "us before it is cancelled")) * time.Microsecond)
	st.Reset("cancelled", false)
}
