package sock

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"
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

// Who ends a direction, or a connection, does not wait for the peer to take the goodbye.
func TestGoodbyeDoesNotWait(t *testing.T) {
	near, far := net.Pipe()
	defer func() { _, _ = near.Close(), far.Close() }()
	c := sealed{near, make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{})}
	ended := make(chan struct{})
	out := NewOut(c)
	out.Ended = func() { close(ended) }
	for name, step := range map[string]struct {
		end  func()
		said chan struct{}
	}{"CloseWrite": {out.CloseWrite, c.halves}, "Close": {out.Close, c.wholes}} {
		returned := make(chan struct{})
		go func() { defer close(returned); step.end() }()
		for what, ch := range map[string]chan struct{}{"returns": returned, "says goodbye": step.said} {
			select {
			case <-ch:
			case <-time.After(5 * time.Second):
				t.Fatalf("not within 5 s: %s %s", name, what)
			}
		}
	}
	select {
	case <-ended:
		t.Error("it is over before the goodbye")
	default:
	}
	close(c.leave)
	<-ended
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
