package compat_test

import (
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/compat"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunnel/tunneltest"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/wire"
)

// TestLastWords: behind the agent's close, what is still under way arrives, and then
// the receiver is told of the end: at once when the server closes, too, else soon. The
// server gets one close.
func TestLastWords(t *testing.T) {
	for name, serverCloses := range map[string]bool{"server closes": true, "server is silent": false} {
		t.Run(name, func(t *testing.T) {
			closes := make(chan struct{}, 10)
			p := newPair(t, compat.Config{Observe: func(received bool, typ wire.Type) {
				if received && typ == wire.CloseRsp {
					closes <- struct{}{}
				}
			}}, compat.Config{})
			s, a := p.open(t, false)
			send(t, a, 300_000, 0)
			a.Stream().CloseWrite()
			tunneltest.Eventually(t, "the server is told", func() bool { _, ended, _, _ := s.State(); return ended })
			if n, _, _, _ := s.State(); n != 300_000 {
				t.Errorf("%d of 300000 bytes came before the end", n)
			}
			if _, ended, _, _ := a.State(); ended {
				t.Fatal("the agent's receiver is told of an end that has not come")
			}
			const words = "still under way"
			p.raw.SendControl(append(wire.AppendDataHead(nil, 1, len(words)), words...))
			start := time.Now()
			if serverCloses {
				p.raw.SendControl(wire.AppendMessage(nil, &wire.Packet{Payload: wire.CloseReq, ConnID: 1}))
			}
			tunneltest.Eventually(t, "the agent's receiver is told", func() bool { _, ended, closed, _ := a.State(); return ended && closed })
			t.Logf("told after %v", time.Since(start))
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

// TestCloseIsHeldBack: a server's close comes some time behind the last data, which an agent of
// the reference protocol may not have passed on yet, and at once where that was answered.
func TestCloseIsHeldBack(t *testing.T) {
	for name, answered := range map[string]bool{"unanswered": false, "answered": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, far := net.Pipe()
				p := newPairOn(t, near, far, compat.Config{}, compat.Config{})
				s, a := p.open(t, false)
				send(t, s, 300_000, 0)
				await(a, 300_000)
				if answered {
					send(t, a, 1, 0)
					await(s, 1)
				}
				s.Stream().Close()
				start := time.Now()
				for ended := false; !ended; _, ended, _, _ = a.State() {
					time.Sleep(time.Millisecond)
				}
				if took := time.Since(start); answered != (took < 10*time.Millisecond) || took > time.Second {
					t.Errorf("the close took %v", took)
				}
			})
		})
	}
}

// TestCutBehindClose: a receiver that listens on behind the agent's close is told of the
// end of the stream.
func TestCutBehindClose(t *testing.T) {
	p := newPair(t, compat.Config{}, compat.Config{})
	s, a := p.open(t, false)
	a.Stream().CloseWrite()
	tunneltest.Eventually(t, "the server is told", func() bool { _, ended, _, _ := s.State(); return ended })
	p.hb.Close()
	tunneltest.Eventually(t, "the agent's receiver is told", func() bool { _, ended, _, err := a.State(); return ended || err != nil })
}
