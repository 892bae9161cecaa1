// SPDX-License-Identifier: Apache-2.0

package link

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tunnel"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tunnel/sinktest"
)

// scripted is a link in a bubble of time whose peer is the test: all frames that the link
// sends go to got.
func scripted(t *testing.T, cfg Config, got func(peer net.Conn, typ byte, payload []byte)) (l *Link, peer net.Conn) {
	t.Helper()
	peer, near := net.Pipe()
	l = New(near, 1<<20, cfg)
	ran, read := make(chan struct{}), make(chan struct{})
	go func() { defer close(ran); _ = l.Run() }()
	go func() {
		defer close(read)
		for head := make([]byte, headerLen); ; {
			if _, err := io.ReadFull(peer, head); err != nil {
				return
			}
			payload := make([]byte, binary.BigEndian.Uint32(head)&(1<<24-1))
			if _, err := io.ReadFull(peer, payload); err != nil {
				return
			}
			got(peer, head[0], payload)
		}
	}()
	t.Cleanup(func() { peer.Close(); l.Close(); <-ran; <-read })
	return l, peer
}

func say(peer net.Conn, typ byte, payload []byte) { _, _ = peer.Write(frame(typ, 0, payload)) }

// talk sends frames that say nothing, so that the link is never silent.
func talk(peer net.Conn, d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		say(peer, typeUnknown, []byte("x"))
	}
}

const typeUnknown = 200

// A peer that leaves one ping unanswered and goes on talking is no dead one, and is asked
// again.
func TestPingLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pings := 0
		l, peer := scripted(t, Config{OnDial: func(*Stream, string) {}}, func(peer net.Conn, typ byte, p []byte) {
			if typ == typePing {
				if pings++; pings > 1 {
					say(peer, typePong, p)
				}
			}
		})
		talk(peer, 900*time.Millisecond)
		time.Sleep(150 * time.Millisecond)
		if _, overdue := l.Silence(); overdue {
			t.Error("overdue, although more came behind the ping")
		}
		time.Sleep(time.Minute) // four times the silence after which a link is dead
		synctest.Wait()
		if _, overdue := l.Silence(); overdue || l.err != nil {
			t.Errorf("overdue %v, ended by %v, with %d pings", overdue, l.err, pings)
		}
	})
}

// Only the answer to the open ping tells of the round trip.
func TestPongUnasked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, peer := scripted(t, Config{OnDial: func(*Stream, string) {}}, func(net.Conn, byte, []byte) {})
		time.Sleep(500 * time.Millisecond)
		for _, sent := range []uint64{0, 1000, uint64(200 * time.Millisecond)} {
			say(peer, typePong, binary.BigEndian.AppendUint64(nil, sent))
		}
		synctest.Wait()
		if rtt := l.minRTT.Load(); rtt != 0 || l.pinged.Load() == 0 {
			t.Errorf("round trip %v, ping open: %v", time.Duration(rtt), l.pinged.Load() != 0)
		}
	})
}

// A first round trip that was slow is not the last word, though the link is never silent.
func TestRoundTripOnceMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := true
		l, peer := scripted(t, Config{OnDial: func(*Stream, string) {}}, func(peer net.Conn, typ byte, p []byte) {
			if typ != typePing {
				return
			}
			if first {
				time.Sleep(800 * time.Millisecond)
			}
			first = false
			time.Sleep(10 * time.Millisecond)
			say(peer, typePong, p)
		})
		talk(peer, 5*time.Second)
		if rtt := time.Duration(l.minRTT.Load()); rtt < 10*time.Millisecond || rtt > 20*time.Millisecond {
			t.Errorf("shortest round trip: %v, is 10ms", rtt)
		}
	})
}

// The numbers of streams are not used again: before they run out the agent is asked for
// another link, and then others take the dials.
func TestNumbersRunOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		drains := 0
		l, _ := scripted(t, Config{}, func(_ net.Conn, typ byte, _ []byte) {
			if typ == typeDrain {
				drains++
			}
		})
		for _, at := range []struct {
			last   uint32
			drains int
			err    error
		}{{0, 0, nil}, {lastID - idReserve - 1, 1, nil}, {lastID - 1, 1, nil}, {lastID, 1, tunnel.ErrLinkClosed}} {
			l.mu.Lock()
			l.nextID = at.last
			l.mu.Unlock()
			st, err := l.Dial("x:1", sinktest.NewSink(nil, false), true)
			synctest.Wait()
			if !errors.Is(err, at.err) || drains != at.drains || err == nil && st.id != at.last+1 {
				t.Errorf("behind number %d: %v, another link asked for %d times", at.last, err, drains)
			}
		}
	})
}

// stuckConn says goodbye for as long as the peer likes.
type stuckConn struct {
	net.Conn
	leave chan struct{}
}

func (c stuckConn) Close() error { <-c.leave; return c.Conn.Close() }

// Streams hear of the end of their link before the goodbye, which may wait.
func TestStreamsEndBeforeGoodbye(t *testing.T) {
	leave := make(chan struct{})
	e := newEndsOver(t, Config{}, func(nc net.Conn) net.Conn { return stuckConn{nc, leave} }, func(nc net.Conn) net.Conn { return nc })
	s, _ := e.open(t)
	closed := make(chan struct{})
	go func() { defer close(closed); e.server.Close() }()
	sinktest.Eventually(t, "the stream is aborted", func() bool { _, _, _, err := s.State(); return err != nil })
	select {
	case <-closed:
		t.Error("the link was closed without a goodbye")
	default:
	}
	close(leave)
	<-closed
}
