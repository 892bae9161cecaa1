// SPDX-License-Identifier: Apache-2.0

package server

import (
	"time"
)

// watch finds agents that do not answer, gives their unanswered dials to others that fit,
// and sends keepalives to agents and frontends.
func (s *Server) watch() {
	defer s.wg.Done()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case <-s.stop:
			return
		case <-tick.C:
		}
		now := time.Now()
		if now.Sub(last) < 4*time.Second { // else it was this process that stood still
			for _, b := range s.reg.list() {
				s.watchAgent(b, now)
				s.endExpelled(b, now)
			}
			s.pingFrontends(now)
		}
		last = now
	}
}

// probeSilence is the silence after which an upstream agent is pinged. Frontends of
// gRPC do not mind how often a server pings.
const probeSilence = 3 * time.Second

// passShare is for how long after a tick dials are given to other agents: with
// thousands of agents, all of them silent, each dial looks at every agent.
const passShare = 100 * time.Millisecond

func (s *Server) watchAgent(b *Backend, now time.Time) {
	late := b.overdue(s.cfg.RetryAfter)
	if b.h2 != nil {
		silent, open := b.h2.Silence(now)
		if open > s.cfg.KeepaliveTimeout && silent > s.cfg.AgentKeepalive+s.cfg.KeepaliveTimeout {
			s.noteAgent(1, b, "The agent does not answer", nil)
			b.close()
			return
		}
		if silent > min(probeSilence, s.cfg.AgentKeepalive) && open == 0 {
			b.probe()
		}
	}
	if len(late) == 0 {
		return
	}
	if !b.suspect() {
		b.probe()
		return
	}
	for _, at := range late {
		if time.Since(now) > passShare {
			return // the next tick goes on, in another order
		}
		at.pass()
	}
}

// pingFrontends pings frontends that were silent for the keepalive time.
func (s *Server) pingFrontends(now time.Time) {
	s.mu.Lock()
	var all []*grpcFrontend
	for c := range s.conns {
		if g, ok := c.(*grpcFrontend); ok {
			all = append(all, g)
		}
	}
	s.mu.Unlock()
	for _, g := range all {
		silent, open := g.conn.Silence(now)
		if open > s.cfg.KeepaliveTimeout {
			g.conn.Close()
		} else if silent > s.cfg.FrontendKeepalive && open == 0 {
			g.conn.Ping(now)
		}
	}
}
