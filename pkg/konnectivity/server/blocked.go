// SPDX-License-Identifier: Apache-2.0

package server

// This file counts blocked connections, which upstream reports as full receive
// channels. Here a connection that cannot pass on what it receives blocks only
// itself, and the data path counts nothing. The connections are counted when metrics
// are read.

// blocker is a frontend connection that knows how many of its tunneled connections are
// blocked: up, because the agent's side does not take what the frontend sends, and
// down, because the frontend does not take what the agent sends.
type blocker interface{ blocked() (up, down int) }

// countBlocked sets the gauge of blocked connections.
func (s *Server) countBlocked() {
	s.mu.Lock()
	conns := s.connsLocked()
	s.mu.Unlock()
	up, down := 0, 0
	for _, c := range conns {
		if b, ok := c.(blocker); ok {
			u, d := b.blocked()
			up, down = up+u, down+d
		}
	}
	s.m.fullChannels.With("Proxy").Set(int64(up))
	s.m.fullChannels.With("Connect").Set(int64(down))
}

func (c *connectFrontend) blocked() (up, down int) {
	if !c.isUp() {
		return 0, 0
	}
	in, out := c.end.Blocked()
	return count(in), count(out)
}

func (g *grpcFrontend) blocked() (up, down int) {
	for _, h := range g.conn.Handlers() {
		if st, ok := h.(*grpcStream); ok {
			u, d := st.blocked()
			up, down = up+u, down+d
		}
	}
	return up, down
}

func (g *grpcStream) blocked() (up, down int) {
	g.mu.Lock()
	conns := make([]*grpcConn, 0, len(g.conns))
	for _, c := range g.conns {
		conns = append(conns, c)
	}
	g.mu.Unlock()
	for _, c := range conns {
		c.mu.Lock()
		waits := len(c.up) > 0
		c.mu.Unlock()
		up += count(waits)
		down += count(g.st.Waits(c))
	}
	return up, down
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}
