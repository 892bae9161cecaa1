// SPDX-License-Identifier: Apache-2.0

package tunneltest

import (
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

// TestResetStaysReset: what either end wrote before it reset the connection arrives,
// also at a slow reader, and behind it a reset: never an end, which would make
// half a transfer look whole.
func TestResetStaysReset(t *testing.T) {
	t.Parallel()
	const size = 3 << 20
	r := NewRig(t, server.Config{})
	r.StartAgent(agent.Config{}, "")
	_, proxy := r.FrontendsTLS()
	cfg, err := r.AgentTLSConfig()()
	if err != nil {
		t.Fatal(err)
	}
	dial := ConnectTLS(proxy, cfg)
	t.Run("destination", func(t *testing.T) {
		addr := Target(t, func(c net.Conn) {
			_, _ = io.ReadFull(c, make([]byte, 1))
			_, _ = c.Write(make([]byte, size))
			cut(c)
		})
		c := MustDial(t, dial, addr)
		if _, err := c.Write([]byte{1}); err != nil {
			t.Fatal(err)
		}
		wantReset(t, c, size)
	})
	t.Run("client", func(t *testing.T) {
		read := make(chan struct{})
		addr := Target(t, func(c net.Conn) {
			defer close(read)
			wantReset(t, c, size)
		})
		c := MustDial(t, dial, addr)
		if _, err := c.Write(make([]byte, size)); err != nil {
			t.Fatal(err)
		}
		cut(c)
		<-read
	})
}

// wantReset reads, after a while, size bytes and a reset.
func wantReset(t *testing.T, c net.Conn, size int) {
	time.Sleep(200 * time.Millisecond) // the reader is late
	b, n := make([]byte, 4<<10), 0
	for {
		m, err := c.Read(b)
		n += m
		if err != nil {
			if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
				t.Errorf("the connection ended with %v, want a reset", err)
			}
			break
		}
		if n < 256<<10 {
			time.Sleep(time.Millisecond) // and slow
		}
	}
	if n != size {
		t.Errorf("%d of %d bytes arrived", n, size)
	}
}

// cut resets a connection when its peer's kernel has all that was written.
func cut(c net.Conn) {
	inner := c
	if tc, ok := c.(*tls.Conn); ok {
		inner = tc.NetConn()
	}
	for sc := netx.New(inner); sc.Unacked() > 0; {
		time.Sleep(time.Millisecond) // a poll of the kernel
	}
	netx.Abort(inner)
}
