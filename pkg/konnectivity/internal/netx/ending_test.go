// SPDX-License-Identifier: Apache-2.0

package netx

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// sealed says goodbye as TLS does: for as long as the peer does not take it.
type sealed struct {
	net.Conn
	halves, wholes, leave chan struct{}
}

func (c sealed) CloseWrite() error { c.halves <- struct{}{}; <-c.leave; return nil }
func (c sealed) Close() error      { c.wholes <- struct{}{}; <-c.leave; return nil }

// CloseWrite and Close return although the peer does not take the TLS goodbye yet, and
// Ended waits for that goodbye.
func TestGoodbyeDoesNotWait(t *testing.T) {
	c := newSealed(t)
	ended := make(chan struct{})
	out := NewOut(c)
	out.Ended = func() { close(ended) }
	for _, step := range []struct {
		name string
		end  func()
		said chan struct{}
	}{{"CloseWrite", out.CloseWrite, c.halves}, {"Close", out.Close, c.wholes}} {
		returned := make(chan struct{})
		go func() { defer close(returned); step.end() }()
		receive(t, step.name+" returns", returned)
		receive(t, step.name+" says goodbye", step.said)
	}
	select {
	case <-ended:
		t.Error("Ended was called before the goodbye was taken")
	default:
	}
	close(c.leave)
	receive(t, "Ended is called", ended)
}

// A connection ends once: what is requested after the same or a stronger way to end does
// nothing, and a stronger way calls Ended no second time.
func TestEndsOnce(t *testing.T) {
	for name, tc := range map[string]struct {
		then   func(o *Out)
		closes int
	}{
		"CloseWrite after Close": {(*Out).CloseWrite, 1},
		"Close after Close":      {(*Out).Close, 1},
		"CloseAcked after Close": {(*Out).CloseAcked, 2}, // closing twice is harmless
	} {
		t.Run(name, func(t *testing.T) {
			c := newSealed(t)
			close(c.leave)
			ended := make(chan struct{}, 2)
			out := NewOut(c)
			out.Ended = func() { ended <- struct{}{} }
			synctest.Test(t, func(*testing.T) {
				out.Close()
				synctest.Wait() // for the goroutines that end it
				tc.then(out)
				synctest.Wait()
			})
			if halves, wholes, calls := len(c.halves), len(c.wholes), len(ended); halves != 0 || wholes != tc.closes || calls != 1 {
				t.Errorf("%d half closes, %d closes, %d calls of Ended, want 0, %d, 1", halves, wholes, calls, tc.closes)
			}
		})
	}
}

func newSealed(t *testing.T) sealed {
	near, far := net.Pipe()
	t.Cleanup(func() { _, _ = near.Close(), far.Close() })
	return sealed{near, make(chan struct{}, 2), make(chan struct{}, 2), make(chan struct{})}
}

func receive(t *testing.T, what string, ch <-chan struct{}) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(5 * time.Second):
		t.Fatalf("not within 5 s: %s", what)
	}
}

// A socket that is connected to itself is no connection, also where that shows late.
func TestSelfConnectionThatComesLate(t *testing.T) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	own, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	to := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(own.(*unix.SockaddrInet4).Port))
	if err := unix.Connect(fd, own); err != nil && !errors.Is(err, unix.EINPROGRESS) {
		t.Fatal(err)
	}
	c := &fileConn{File: os.NewFile(uintptr(fd), "connection"), to: to}
	defer c.Close()
	if err := c.stand(context.Background(), false, own); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("a connection to itself: %v", err)
	}
}
