// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"slices"
	"time"
)

// closer is a connection that Shutdown ends.
type closer interface {
	// goAway lets the connection end when its streams have ended.
	goAway()
	abort()
}

// track registers a connection. It returns false when the server is stopping.
func (s *Server) track(c closer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return false
	}
	s.conns[c] = struct{}{}
	if s.draining {
		defer c.goAway()
	}
	return true
}

// trackInstead registers c in place of before.
func (s *Server) trackInstead(before, c closer) bool {
	ok := s.track(c)
	s.untrack(before)
	return ok
}

func (s *Server) untrack(c closer) {
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
}

// spawn runs f in a goroutine that Shutdown waits for. It returns false when Shutdown no
// longer waits.
func (s *Server) spawn(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return false
	}
	s.wg.Go(f)
	return true
}

// Established is the number of tunneled connections and pending dials.
func (s *Server) Established() int64 { return s.carried.Get() }

// acceptLast is how long a stopping server still accepts connections that were already in
// the kernel's accept queue.
const acceptLast = 10 * time.Millisecond

// Shutdown stops accepting connections, asks agents to use other servers, waits until the
// tunneled connections have ended or ctx is done, and closes the rest. A connection has
// ended when its agent has received all of its data, which can be long after its frontend has
// disconnected, and when its frontend has: upstream's client takes the end of its
// gRPC connection for the end of the data.
func (s *Server) Shutdown(ctx context.Context) {
	s.mu.Lock()
	s.draining = true
	for l := range s.listeners {
		if d, ok := l.(interface{ SetDeadline(t time.Time) error }); !ok || ctx.Err() != nil || d.SetDeadline(time.Now().Add(acceptLast)) != nil {
			_ = l.Close()
		}
	}
	conns := s.connsLocked()
	s.mu.Unlock()
	for _, c := range conns {
		c.goAway()
	}
	s.awaitIdle(ctx)
	s.mu.Lock()
	s.stopped = true
	for l := range s.listeners {
		_ = l.Close()
	}
	conns = s.connsLocked()
	s.mu.Unlock()
	close(s.stop)
	s.cancel()
	for _, c := range conns {
		c.abort()
	}
	s.wg.Wait()
	s.spare.close()
}

// awaitIdle returns when ctx is done, or when all listeners are closed and the server has no
// connection, no pending dial, no frontend that may still dial, and no data for a frontend.
func (s *Server) awaitIdle(ctx context.Context) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		s.mu.Lock()
		accepting := len(s.listeners)
		s.mu.Unlock()
		if accepting == 0 && s.opening.Load() == 0 && s.Established() == 0 && s.streams() == 0 && !s.unsent() {
			return
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// unsent reports whether a frontend has not got all data yet of connections that have ended.
func (s *Server) unsent() bool {
	s.mu.Lock()
	conns := s.connsLocked()
	s.mu.Unlock()
	return slices.ContainsFunc(conns, func(c closer) bool {
		g, isGRPC := c.(*grpcFrontend)
		return isGRPC && g.conn.Unsent()
	})
}

// goingDown reports whether Shutdown was called.
func (s *Server) goingDown() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.draining
}

func (s *Server) connsLocked() []closer {
	out := make([]closer, 0, len(s.conns))
	for c := range s.conns {
		out = append(out, c)
	}
	return out
}
