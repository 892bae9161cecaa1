package server

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
)

// exhausted is a listener that runs out of descriptors some times before it closes.
type exhausted struct {
	net.Listener
	left int
}

func (l *exhausted) Accept() (net.Conn, error) {
	if l.left--; l.left < 0 {
		return nil, net.ErrClosed
	}
	return nil, &net.OpError{Op: "accept", Err: syscall.EMFILE}
}

// TestAcceptFailuresAreSaidOnce: running out of descriptors does not end a listener,
// and does not fill the log.
func TestAcceptFailuresAreSaidOnce(t *testing.T) {
	var said atomic.Int32
	s := New(Config{Logf: func(_ int, format string, _ ...any) {
		if strings.HasPrefix(format, "accepting") {
			said.Add(1)
		}
	}}, NewMetrics())
	defer func() {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		s.Shutdown(ctx)
	}()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &exhausted{Listener: inner, left: 5}
	if err := s.accept(l, func(net.Conn) {}); !errors.Is(err, net.ErrClosed) {
		t.Errorf("ended with %v", err)
	}
	if n := said.Load(); l.left >= 0 || n != 1 {
		t.Errorf("said %d times, %d failures left; want once for all", n, l.left)
	}
}
