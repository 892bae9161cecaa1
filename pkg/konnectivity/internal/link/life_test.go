// SPDX-License-Identifier: Apache-2.0

package link

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tunnel/sinktest"
)

// slowConn is a connection whose process reads so many bytes per second, or is frozen
// and reads nothing.
type slowConn struct {
	net.Conn
	rate           int
	frozen, closed atomic.Bool
}

func (c *slowConn) Read(p []byte) (int, error) {
	for c.frozen.Load() {
		if c.closed.Load() {
			return 0, net.ErrClosed
		}
		time.Sleep(time.Millisecond) // a poll of what the test sets
	}
	n, err := c.Conn.Read(p[:min(len(p), 4096)])
	time.Sleep(time.Duration(n) * time.Second / time.Duration(c.rate)) // the rate itself
	return n, err
}

func (c *slowConn) Close() error {
	c.closed.Store(true)
	return c.Conn.Close()
}

// TestBusyLink: a link whose uploads fill every queue is kept while its peer is slow,
// though the answer to a ping takes longer than a silent peer has, and is given up in
// time once the peer is frozen. Its streams end with it.
func TestBusyLink(t *testing.T) {
	const deadAfter = 2 * time.Second
	for _, fromAgent := range []bool{false, true} {
		t.Run(map[bool]string{false: "server", true: "agent"}[fromAgent], func(t *testing.T) {
			t.Parallel() // it mostly waits
			far := &slowConn{rate: 64 << 10}
			slow := func(nc net.Conn) net.Conn {
				_ = nc.(*net.TCPConn).SetReadBuffer(32 << 10)
				far.Conn = nc
				return far
			}
			near := func(nc net.Conn) net.Conn { return tunneled{NewBatchConn(nc, nil)} }
			cfg := Config{Window: 4 << 20, MaxWindow: 4 << 20, PingAfter: 500 * time.Millisecond, DeadAfter: deadAfter}
			var e *ends
			if fromAgent {
				e = newEndsOver(t, cfg, slow, near)
			} else {
				e = newEndsOver(t, cfg, near, slow)
			}
			sender := e.server
			if fromAgent {
				sender = e.agent
			}
			var wg sync.WaitGroup
			var sinks []*sinktest.Sink
			for range 8 {
				s, a := e.open(t)
				if fromAgent {
					s = a
				}
				sinks = append(sinks, s)
			}
			for _, s := range sinks {
				wg.Go(func() { s.SendAll(make([]byte, 3<<20)) })
			}
			select {
			case <-sender.Done():
				t.Fatal("a link that moves is given up")
			case <-time.After(2 * deadAfter):
			}
			far.frozen.Store(true)
			start := time.Now()
			select {
			case <-sender.Done():
				t.Logf("found after %v", time.Since(start).Round(time.Millisecond))
			case <-time.After(time.Minute):
				t.Fatal("a link to a frozen peer is kept")
			}
			wg.Wait()
			for _, s := range sinks {
				sinktest.Eventually(t, "the stream ends", func() bool { _, _, _, err := s.State(); return err != nil })
			}
		})
	}
}
