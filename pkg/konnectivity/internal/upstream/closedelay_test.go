// SPDX-License-Identifier: Apache-2.0

package upstream_test

import (
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tunnel/sinktest"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/upstream"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/wire"
)

// TestLastWords checks that, after the agent's close, data that is still in flight arrives, and
// that the receiver then gets the end: at once if the server closes too, otherwise after a
// short time. The server gets one close.
func TestLastWords(t *testing.T) {
	for name, serverCloses := range map[string]bool{"server closes": true, "server is silent": false} {
		t.Run(name, func(t *testing.T) {
			closes := make(chan struct{}, 10)
			p := newPair(t, upstream.Config{Observe: func(received bool, typ wire.Type) {
				if received && typ == wire.CloseRsp {
					closes <- struct{}{}
				}
			}}, upstream.Config{})
			s, a := p.open(t, false)
			send(t, a, 300_000, 0)
			a.Stream().CloseWrite()
			sinktest.Eventually(t, "the server sees the end", func() bool { _, ended, _, _ := s.State(); return ended })
			if n, _, _, _ := s.State(); n != 300_000 {
				t.Errorf("%d of 300000 bytes came before the end", n)
			}
			if _, ended, _, _ := a.State(); ended {
				t.Fatal("the agent's receiver gets an end that has not come")
			}
			const words = "still under way"
			p.raw.SendControl(append(wire.AppendDataHead(nil, 1, len(words)), words...))
			start := time.Now()
			if serverCloses {
				p.raw.SendControl(wire.AppendMessage(nil, &wire.Packet{Payload: wire.CloseReq, ConnID: 1}))
			}
			sinktest.Eventually(t, "the agent's receiver gets the end", func() bool { _, ended, closed, _ := a.State(); return ended && closed })
			t.Logf("ended after %v", time.Since(start))
			if got := string(a.Got()); got != words {
				t.Errorf("the agent's receiver got %q, want %q", got, words)
			}
			if n := p.agent.Len(); n != 0 {
				t.Errorf("%d connections are left at the agent", n)
			}
			if n := len(closes); n != 1 {
				t.Errorf("the server got %d closes, want 1", n)
			}
		})
	}
}

// TestCloseIsHeldBack checks that a server delays its close for some time after the last data,
// which an upstream agent may not have passed on yet, and that it closes at once if the data
// was answered.
func TestCloseIsHeldBack(t *testing.T) {
	for name, c := range map[string]heldClose{
		"unanswered":                  {},
		"answered":                    {answered: true, soon: true},
		"long ago":                    {close: time.Minute, soon: true},
		"stuck, and closed late":      {shut: 700 * time.Millisecond, close: 600 * time.Millisecond},
		"stuck, and closed at once":   {shut: 490 * time.Millisecond},
		"something came meanwhile":    {meets: true, shut: 100 * time.Millisecond},
		"left long after it was sent": {shut: 2 * time.Second, close: 2*time.Second + 100*time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, c.try) })
	}
}

type heldClose struct {
	answered bool          // after the last data
	meets    bool          // the destination sends before the last data has left
	shut     time.Duration // how long nothing is sent
	close    time.Duration // when the client closes
	soon     bool          // the end comes moments after the client's close
}

func (c *heldClose) try(t *testing.T) {
	const size, hold = 100_000, 500 * time.Millisecond
	near, far := net.Pipe()
	p := newPairOn(t, near, far, upstream.Config{}, upstream.Config{Pause: true})
	p.slow = true
	fill, shut := p.open(t, false)
	p.slow = false
	s, a := p.open(t, false)
	start := time.Now()
	if c.shut > 0 {
		p.wg.Go(func() { send(t, fill, 1<<20, 0) }) // all but some bytes of the window
		synctest.Wait()
	}
	if c.meets {
		send(t, a, 1, 0)
	}
	send(t, s, size, 0)
	time.AfterFunc(c.shut, func() {
		shut.SetSlow(false)
		shut.Consume()
	})
	closed := time.Now().Add(max(c.close, time.Millisecond))
	time.AfterFunc(time.Until(closed), s.Stream().Close)
	await(a, size)
	came := time.Now()
	if c.answered {
		send(t, a, 1, 0)
	}
	for over := false; !over; _, over, _, _ = a.State() {
		time.Sleep(time.Millisecond)
	}
	behind := time.Since(came)
	if c.soon {
		behind = time.Since(closed)
	}
	if c.soon != (behind < 50*time.Millisecond) || !c.soon && behind < hold {
		t.Errorf("data came after %v, the close %v behind it, %v behind the client's", came.Sub(start), behind, time.Since(closed))
	}
}

// TestCutBehindClose checks that a receiver that waits for late data after the agent's close is
// notified when the stream ends.
func TestCutBehindClose(t *testing.T) {
	p := newPair(t, upstream.Config{}, upstream.Config{})
	s, a := p.open(t, false)
	a.Stream().CloseWrite()
	sinktest.Eventually(t, "the server sees the end", func() bool { _, ended, _, _ := s.State(); return ended })
	p.hb.Close()
	sinktest.Eventually(t, "the agent's receiver gets the end", func() bool { _, ended, _, err := a.State(); return ended || err != nil })
}
