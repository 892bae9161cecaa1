// SPDX-License-Identifier: Apache-2.0

package tunneltest

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/netx"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
)

// TestLastWords: what either end wrote before it closed arrives although the other one
// goes on writing, which fails at the closed end: an answer that comes before the end
// of the question, as of a command that does not read all of its input.
func TestLastWords(t *testing.T) {
	t.Parallel()
	for mode, overTCP := range map[string]bool{"grpc": false, "http-connect": false, "http-connect with TLS": true} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			lastWordsOf(t, mode, overTCP)
		})
	}
}

func lastWordsOf(t *testing.T, mode string, overTCP bool) {
	r := NewRig(t, server.Config{})
	a := r.StartAgent(agent.Config{}, "")
	dial := map[string]Dialer{"grpc": GRPC(r.GRPC), "http-connect": Connect(r.Connect)}[mode]
	if overTCP {
		cfg, err := r.AgentTLSConfig()()
		if err != nil {
			t.Fatal(err)
		}
		_, proxy := r.FrontendsTLS()
		dial = ConnectTLS(proxy, cfg)
	}
	for end, reset := range map[string]bool{"closes": false, "resets": true} {
		t.Run("destination "+end, func(t *testing.T) {
			conns := make(chan net.Conn, 1)
			c := MustDial(t, dial, heldTarget(t, conns))
			lastWords(t, <-conns, c, reset, overTCP)
			Eventually(t, Patience, "the agent keeps nothing", func() bool { return a.Connections() == 0 })
		})
		if mode == "http-connect" && !reset || overTCP {
			t.Run("client "+end, func(t *testing.T) {
				conns := make(chan net.Conn, 1)
				c := MustDial(t, dial, heldTarget(t, conns))
				lastWords(t, c, <-conns, reset, true)
				Eventually(t, Patience, "the agent keeps nothing", func() bool { return a.Connections() == 0 })
			})
		}
	}
}

// heldTarget is a destination that the test plays.
func heldTarget(t *testing.T, conns chan<- net.Conn) string {
	return Target(t, func(c net.Conn) {
		conns <- c
		<-t.Context().Done()
	})
}

// lastWords fills the way from one end to the other, ends it there while the other end
// writes, and wants all bytes; behind a reset that the way can tell a reset, else an end.
func lastWords(t *testing.T, from, to net.Conn, reset, tells bool) {
	sent := fill(t, from)
	if !reset { // a reset must not come before the end
		_ = from.(interface{ CloseWrite() error }).CloseWrite()
		if tc, ok := from.(*tls.Conn); ok {
			_ = tc.NetConn().(*net.TCPConn).CloseWrite()
		}
	}
	sent = sent[drain(t, from, to):]
	if reset {
		cut(from)
	} else {
		_ = from.Close()
	}
	for range 20 { // the first is answered by a reset, the next ones fail
		_, _ = to.Write([]byte("is anybody there?"))
		time.Sleep(5 * time.Millisecond) // the peer's kernel answers
	}
	_ = to.SetReadDeadline(time.Now().Add(Patience))
	got, err := io.ReadAll(to)
	if !bytes.Equal(got, sent) {
		t.Errorf("%d of %d bytes arrived, then %v", len(got), len(sent), err)
	}
	isReset := errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
	if !reset && err != nil || reset && tells && !isReset {
		t.Errorf("the connection ended with %v; reset: %v", err, reset)
	}
}

// fill writes until nothing moves.
func fill(t *testing.T, from net.Conn) (sent []byte) {
	t.Helper()
	const part = 16 << 10
	sc := netx.New(from)
	waits := func() bool { return sc.Unacked() > 0 || sc.Unsent() > 0 }
	for full := false; !full; full = waits() {
		chunk := bytes.Repeat([]byte{byte(len(sent) / part)}, part)
		if _, err := from.Write(chunk); err != nil || len(sent) > 64<<20 {
			t.Fatalf("writing behind %d bytes: %v", len(sent), err)
		}
		sent = append(sent, chunk...)
		for i := 0; i < 100 && waits(); i++ {
			time.Sleep(2 * time.Millisecond) // a poll of the kernel
		}
	}
	return sent
}

// drain reads until the writer's kernel holds none of its bytes, and tells how many.
func drain(t *testing.T, from, to net.Conn) (n int) {
	t.Helper()
	for sc := netx.New(from); sc.Unacked() > 0; time.Sleep(10 * time.Millisecond) {
		m, err := io.ReadFull(to, make([]byte, 16<<10))
		if n += m; err != nil {
			t.Fatalf("reading a part: %v", err)
		}
	}
	return n
}
