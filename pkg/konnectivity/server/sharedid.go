// SPDX-License-Identifier: Apache-2.0

package server

import (
	"time"

	"github.com/fairlead-dev/fairlead/pkg/internal/logthrottle"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/link"
)

// sharedIDAfter is how long an agent may believe that it is connected to a server that has
// lost it or was replaced.
const sharedIDAfter = time.Minute

// noteDuplicate handles an agent that wants no link because it has one to a server with this
// ID. If this server does not have that link, another server uses the same ID, and the agent
// will never connect to both. The agent is not authenticated yet, so this is only a hint.
func (s *Server) noteDuplicate(peer string, hello *link.Hello) {
	now := time.Now()
	started, lost := time.Unix(0, s.started.Load()), time.Unix(0, s.lost.Load())
	if hello.Only != "" || now.Sub(started) < sharedIDAfter || now.Sub(lost) < sharedIDAfter || s.Connected(hello.AgentID) {
		return
	}
	s.m.sharedID.Inc()
	s.throttled.Add(logthrottle.Event{Level: 1, Peer: peer, Message: "The agent is connected to another server with this server's ID: give each server its own --server-id",
		Who: []any{"address", peer}, Why: []any{"serverID", s.cfg.ServerID}})
}
