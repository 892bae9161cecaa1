package server

// What upstream calls a full receive channel is here a connection that cannot pass on
// what it receives: it waits alone, and nothing counts it on the way of its bytes. It
// is found when metrics are read.

// blocker is a connection of a client that knows how many tunnelled connections on it
// are blocked: up, because the agent's side takes nothing that the client sends, and
// down, because the client takes nothing that comes from the agent.
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

func (c *connectClient) blocked() (up, down int) {
	if !c.isUp() {
		return 0, 0
	}
	in, out := c.end.Blocked()
	return count(in), count(out)
}

func (g *grpcClient) blocked() (up, down int) {
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
