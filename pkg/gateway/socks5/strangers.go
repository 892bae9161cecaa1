// SPDX-License-Identifier: Apache-2.0

package socks5

import (
	"container/list"
	"net"
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
	closed atomic.Bool // to make room for another one
	place  *list.Element
}

// enter adds a stranger and returns the oldest one if that has to make room for it. The
// caller holds s.mu.
func (s *Server) enter(st *stranger) (oldest *stranger) {
	st.place = s.strangers.PushBack(st)
	if s.strangers.Len() <= maxStrangers(s.cfg.MaxConns) {
		return nil
	}
	oldest, _ = s.strangers.Remove(s.strangers.Front()).(*stranger)
	oldest.closed.Store(true)
	return oldest
}

// known removes a stranger, once its client has completed the handshake or has gone.
func (s *Server) known(st *stranger) {
	if st == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.strangers.Remove(st.place) // does nothing if enter has removed it
}

// errMadeRoom is why a stranger was closed.
var errMadeRoom = gateway.Errorf(gateway.ReasonBusy, "complete the handshake at once, or raise --max-connections",
	"the connection waited longest of too many that did not complete the handshake")
