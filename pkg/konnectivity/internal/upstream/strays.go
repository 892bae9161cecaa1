// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"fmt"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/wire"
)

// stray reports a packet for a connection that is not there.
func (s *Session) stray(t wire.Type, id int64) {
	s.mu.Lock()
	never := (id <= 0 || id > s.nextID) && !s.sawUnknownID
	s.sawUnknownID = s.sawUnknownID || never
	s.mu.Unlock()
	s.cfg.OnStray(t, id, never)
}

// reused reports a number that is in use already.
func (s *Session) reused(format string, number int64) {
	s.mu.Lock()
	first := !s.sawReusedID
	s.sawReusedID = true
	s.mu.Unlock()
	s.cfg.OnBad(fmt.Errorf(format, number), first)
}

// misdirected reports a packet of a type that only this side sends. It is ignored.
func (s *Session) misdirected(t wire.Type) {
	s.mu.Lock()
	first := !s.sawMisdirected
	s.sawMisdirected = true
	s.mu.Unlock()
	s.cfg.OnBad(fmt.Errorf("%s, which its side never sends", t), first)
}
