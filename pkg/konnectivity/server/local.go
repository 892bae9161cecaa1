// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net"
	"slices"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/link"
)

// local carries dials for destinations that the server reaches itself. It is a link whose other end is in this process,
// so that such connections have the same flow control, half-close and errors as those through agents.
type local struct {
	b     *Backend
	match func(address string) bool
}

// AddLocal gives dials whose address matches to the other end of nc, and never to an agent. It is called once, before the
// server has listeners.
func (s *Server) AddLocal(nc net.Conn, match func(address string) bool) {
	b := &Backend{peer: "local", since: time.Now(), dials: map[*attempt]time.Time{}}
	b.link = link.New(nc, s.cfg.Link.Window, s.cfg.Link)
	b.account = s.memory.Open(b.key(), b.link)
	s.local = &local{b, match}
	lc := &linkConn{s, b}
	s.track(lc)
	s.wg.Go(func() {
		defer s.untrack(lc)
		if err := b.link.Run(); !s.goingDown() {
			s.cfg.Logger.Error(err, "Local destinations cannot be reached any more")
		}
	})
}

// pickLocal returns the link for an address that needs no agent. own is false for all other addresses.
func (s *Server) pickLocal(address string, tried []*Backend) (b *Backend, own bool) {
	if s.local == nil || !s.local.match(address) {
		return nil, false
	}
	if slices.Contains(tried, s.local.b) {
		return nil, true
	}
	return s.local.b, true
}

// streams is the number of streams on all links.
func (s *Server) streams() (n int) {
	for _, b := range s.backends() {
		n += b.streams()
	}
	return n
}

// backends are all links that carry connections.
func (s *Server) backends() []*Backend {
	all := s.reg.list()
	if s.local != nil {
		all = append(all, s.local.b)
	}
	return all
}
