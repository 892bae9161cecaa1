// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead-dev/fairlead/pkg/internal/logtest"
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
	s := New(Config{Logger: logtest.New(func(_ int, line string) {
		if strings.HasPrefix(line, "Cannot accept connections") {
			said.Add(1)
		}
	})}, NewMetrics())
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
	if err := s.accept(l, listening{serve: func(net.Conn) {}}); !errors.Is(err, net.ErrClosed) {
		t.Errorf("ended with %v", err)
	}
	if n := said.Load(); l.left >= 0 || n != 1 {
		t.Errorf("said %d times, %d failures left; want once for all", n, l.left)
	}
}

// starved is a listener on which nothing can be accepted for want of descriptors.
type starved struct{ *net.UnixListener }

func (l starved) Accept() (net.Conn, error) {
	c, err := l.SyscallConn()
	if err != nil {
		return nil, err
	}
	waits := false
	if err := c.Control(func(fd uintptr) {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		_, _ = unix.Poll(fds, 20)
		waits = fds[0].Revents != 0
	}); err != nil {
		return nil, net.ErrClosed
	}
	if !waits {
		return nil, &net.OpError{Op: "accept", Err: syscall.ECONNABORTED}
	}
	return nil, &net.OpError{Op: "accept", Err: syscall.EMFILE}
}

// TestTurnAway: without descriptors each client is refused: one of HTTP CONNECT with a
// reason, whenever it makes its request, others by a close.
func TestTurnAway(t *testing.T) {
	m := NewMetrics()
	s := New(Config{}, m)
	defer func() {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		s.Shutdown(ctx)
	}()
	for name, serve := range map[string]func(net.Listener, *tls.Config) error{"http-connect": s.ServeHTTPConnect, "grpc": s.ServeGRPC, "agents": s.ServeAgents} {
		path := filepath.Join(t.TempDir(), "s")
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		go func() { _ = serve(starved{l}, nil) }()
		const clients = 10
		for i := range clients {
			c, err := net.Dial("unix", path)
			if err != nil {
				t.Fatal(err)
			}
			_ = c.SetDeadline(time.Now().Add(time.Minute))
			if i%2 == 1 {
				time.Sleep(50 * time.Millisecond) // accepted by then
			}
			_, _ = c.Write([]byte("CONNECT 10.0.0.1:443 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"))
			answer, err := io.ReadAll(c)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatalf("%s: no answer", name)
			}
			if want := "HTTP/1.1 503 limit: server has no free file descriptors\r\n"; name == "http-connect" && !strings.HasPrefix(string(answer), want) {
				t.Errorf("answer %q, %v, want %q", answer, err, want)
			}
			_ = c.Close()
		}
		if n := m.turnedAway.With(name).Get(); n != clients {
			t.Errorf("%s: %d are counted, want %d", name, n, clients)
		}
	}
}

// TestAcceptsQueuedConnections checks that a server that stops serves the connections that the kernel has queued, also if
// the deadline of the listener passes before the server accepts them. It must not reset them.
func TestAcceptsQueuedConnections(t *testing.T) {
	s := New(Config{}, NewMetrics())
	defer func() {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		s.Shutdown(ctx)
	}()
	path := filepath.Join(t.TempDir(), "s")
	l, err := ListenUnix(path, true)
	if err != nil {
		t.Fatal(err)
	}
	const clients = 3
	for range clients {
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	if err := l.(*unixListener).SetDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{}, clients)
	if err := s.accept(l, listening{serve: func(c net.Conn) { _ = c.Close(); served <- struct{}{} }}); !errors.Is(err, net.ErrClosed) {
		t.Errorf("ended with %v", err)
	}
	for n := range clients {
		select {
		case <-served:
		case <-time.After(30 * time.Second):
			t.Fatalf("%d of %d queued connections were served", n, clients)
		}
	}
}
