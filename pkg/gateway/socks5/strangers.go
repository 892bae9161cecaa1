// SPDX-License-Identifier: Apache-2.0

package socks5

import (
	"container/list"
	"net"
	"net/netip"
	"sync/atomic"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
)

// minStrangers is how many clients may at least be in their handshake at a time.
const minStrangers = 16

// maxStrangers is how many connections may be in their handshake: a quarter of all, so
// that clients that never complete it keep no other client out.
func maxStrangers(maxConns int) int { return min(max(maxConns/4, minStrangers), maxConns) }

// stranger is a connection whose client has not completed its handshake.
type stranger struct {
	nc     net.Conn
	client netip.Prefix
	closed atomic.Bool // to make room for another one
	place  *list.Element
	// user is whom the connection counts for instead of its address; empty for a shared password.
	user string
}

// enter takes a place for a connection. It returns nil if the server is busy. closed is the stranger that has to make room, if
// any: the oldest of the client itself if that has all of its places, or else of the client that has most strangers, if there
// are too many. The caller holds s.mu.
func (s *Server) enter(nc net.Conn) (st, closed *stranger) {
	client := clientOf(nc)
	if s.open >= s.cfg.MaxConns {
		return nil, nil
	}
	if s.perClient[client] >= s.cfg.MaxConnsPerClient {
		if closed = s.makeRoom(client); closed == nil {
			return nil, nil
		}
	}
	s.open++
	s.perClient[client]++
	st = &stranger{nc: nc, client: client}
	st.place = s.strangers.PushBack(st)
	s.strangersOf[client]++
	if s.strangers.Len() <= maxStrangers(s.cfg.MaxConns) {
		return st, closed
	}
	most := client
	for other, n := range s.strangersOf {
		if n > s.strangersOf[most] {
			most = other
		}
	}
	return st, s.makeRoom(most) // the number of strangers has grown, so that none is closed yet
}

// makeRoom takes out the oldest stranger of a client and returns it to be closed; nil if it has none. The caller holds s.mu.
func (s *Server) makeRoom(client netip.Prefix) *stranger {
	for e := s.strangers.Front(); e != nil && s.strangersOf[client] > 0; e = e.Next() {
		if found, _ := e.Value.(*stranger); found.client == client {
			found.closed.Store(true)
			s.leave(found)
			s.uncount(found) // at once: what is being closed must not make others wait
			return found
		}
	}
	return nil
}

// leave takes a stranger out, unless it is out already. The caller holds s.mu.
func (s *Server) leave(st *stranger) {
	if st.place == nil {
		return
	}
	s.strangers.Remove(st.place)
	st.place = nil
	decrement(s.strangersOf, st.client)
}

// known removes a stranger, once its client has completed the handshake or has gone.
func (s *Server) known(st *stranger) {
	if st == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leave(st)
}

// countByUser counts a connection as one of its user instead of its address, behind which there may be
// many users. It tells whether the user may have another one.
func (s *Server) countByUser(st *stranger, user string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case st.closed.Load(): // it counts no more
		return true
	case s.perUser[user] >= s.cfg.MaxConnsPerClient:
		return false
	}
	decrement(s.perClient, st.client)
	s.perUser[user]++
	st.user = user
	return true
}

// decrement counts one less of a key.
func decrement[K comparable](counts map[K]int, key K) {
	if counts[key]--; counts[key] == 0 {
		delete(counts, key)
	}
}

// errMadeRoom is why a stranger was closed.
var errMadeRoom = gateway.Errorf(gateway.ReasonBusy, "complete the handshake at once, or raise --max-connections or --max-connections-per-client",
	"the connection waited longest of too many that did not complete the handshake")

// maxChecks is how many tokens of one client are in review at a time: each is a request to the
// API server, which strangers may cause.
const maxChecks = 8

func (s *Server) beginCheck(client netip.Prefix) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.checking[client] >= maxChecks {
		return false
	}
	s.checking[client]++
	return true
}

func (s *Server) endCheck(client netip.Prefix) {
	s.mu.Lock()
	defer s.mu.Unlock()
	decrement(s.checking, client)
}
