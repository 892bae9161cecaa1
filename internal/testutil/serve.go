// SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"errors"
	"net"
	"sync"
	"testing"
	"time"
)

// Serve calls serve for each connection of a listener, in a goroutine of its own, and closes the connection when serve
// returns. When the test ends, Serve closes the listener and all connections, and waits for the calls.
func Serve(t testing.TB, l net.Listener, serve func(net.Conn)) {
	t.Helper()
	ServeWith(t, l, func(_ *Conns, c net.Conn) { serve(c) })
}

// ServeWith is Serve for a serve that opens further connections. It adds them to conns, so that they end with the test.
// ServeWith returns conns.
func ServeWith(t testing.TB, l net.Listener, serve func(conns *Conns, c net.Conn)) *Conns {
	t.Helper()
	conns := &Conns{}
	t.Cleanup(serveConns(l, conns, serve))
	return conns
}

func serveConns(l net.Listener, conns *Conns, serve func(*Conns, net.Conn)) (stop func()) {
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil { // such as too many open files
				time.Sleep(time.Millisecond)
				continue
			}
			conns.Add(c) // the connection may come after stop
			wg.Go(func() {
				defer conns.Remove(c)
				serve(conns, c)
			})
		}
	})
	return func() {
		_ = l.Close()
		conns.Close()
		wg.Wait()
	}
}

// Conns are connections that end together. The zero value is empty.
type Conns struct {
	mu     sync.Mutex
	closed bool
	open   map[net.Conn]struct{}
}

// Add adds a connection. After Close, it closes the connection at once: a listener that is being closed can still return
// one.
func (s *Conns) Add(c net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = c.Close()
		return
	}
	if s.open == nil {
		s.open = map[net.Conn]struct{}{}
	}
	s.open[c] = struct{}{}
}

// Remove removes a connection and closes it.
func (s *Conns) Remove(c net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, c)
	_ = c.Close()
}

// Cut closes the connections that are open. Others can be added afterward.
func (s *Conns) Cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cut()
}

// Close closes all connections, and those that are added later.
func (s *Conns) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.cut()
}

func (s *Conns) cut() {
	for c := range s.open {
		_ = c.Close()
	}
	s.open = nil
}
