// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/internal/logthrottle"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/link"
)

// admit authenticates an agent and gives it a seat, which the caller returns with unseat
// when the agent has gone. reason is the label of the metric. ctx is done when the agent
// has gone.
func (s *Server) admit(ctx context.Context, nc *tls.Conn, token, identifiers string) (ids Identifiers, reason string, err error) {
	if ids, err = ParseIdentifiers(identifiers); err != nil {
		return ids, "identifiers", err
	}
	node := ""
	ctx, cancel := context.WithTimeout(ctx, s.admission())
	defer cancel()
	if s.cfg.Tokens != nil {
		if node, ids.pod, err = s.checkToken(ctx, nc.RemoteAddr().String(), token); err != nil {
			s.m.tokenReview.With("refused").Inc()
			return ids, "token", s.tokenError(err)
		}
		s.m.tokenReview.With("accepted").Inc()
	}
	if len(ids.problems) > 0 {
		peer := nc.RemoteAddr().String()
		s.throttled.Add(logthrottle.Event{Level: 1, Peer: peer, Message: "The agent has identifiers that match no destination", Who: []any{"address", peer},
			Why: []any{"identifiers", strings.Join(ids.problems[:min(len(ids.problems), maxNamed)], "; ")}})
	}
	state := nc.ConnectionState()
	if err := s.cfg.Claims.check(ctx, &state, node, &ids); err != nil {
		return ids, "claims", err
	}
	if s.goingDown() {
		return ids, "draining", errStopping
	}
	if err := s.seat(&ids); err != nil {
		return ids, "limit", err
	}
	return ids, "", nil
}

// checkToken returns what a token is bound to, as far as the checker knows that.
func (s *Server) checkToken(ctx context.Context, peer, token string) (node, pod string, err error) {
	if c, ok := s.cfg.Tokens.(PodTokenChecker); ok {
		return c.CheckPod(ctx, peer, token)
	}
	node, err = s.cfg.Tokens.Check(ctx, peer, token)
	return node, "", err
}

// seat reserves a place for an agent's connection, unless the server or the agent's owner
// has reached its limit.
func (s *Server) seat(ids *Identifiers) error {
	if !s.seats.IncBelow(s.cfg.MaxAgents) {
		return errTooManyAgents
	}
	if !ids.owned {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	have := s.owners[ids.owner]
	if have.links-min(have.leaving, s.cfg.MaxPerOwner) >= s.cfg.MaxPerOwner {
		s.seats.Dec()
		return fmt.Errorf("%q has %d connections already: raise --max-links-per-owner if it runs so many agents", ids.owner, have.links)
	}
	have.links++
	s.owners[ids.owner] = have
	ids.seat = &seat{}
	return nil
}

// ownerLinks are the links of an owner. Links that drain do not count against its limit,
// so that their replacements are admitted. An agent may drain its links at any time, so no
// more draining links are exempt than the limit allows. That bounds all links to twice the
// limit.
type ownerLinks struct{ links, leaving int }

// seat is the place of one link in its owner's limit.
type seat struct{ leaving bool } // guarded by Server.mu

// vacate notes that a link drains. For a link that has not joined yet, vacate is called
// when it joins.
func (s *Server) vacate(b *Backend) {
	if !s.reg.has(b) || b.ids.seat == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	have, ok := s.owners[b.ids.owner]
	if !ok || b.ids.seat.leaving {
		return
	}
	b.ids.seat.leaving = true
	have.leaving++
	s.owners[b.ids.owner] = have
}

// unseat returns what seat reserved.
func (s *Server) unseat(ids *Identifiers) {
	s.seats.Dec()
	if ids.seat == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	have := s.owners[ids.owner]
	have.links--
	if ids.seat.leaving {
		have.leaving--
	}
	ids.seat.leaving = true // so that it is not counted again
	if s.owners[ids.owner] = have; have.links == 0 {
		delete(s.owners, ids.owner)
	}
}

// admission is how long an agent waits for the API server at most. It is less than the
// agent waits for its welcome, so that the agent can receive the reason of a refusal.
func (s *Server) admission() time.Duration { return s.cfg.HandshakeTimeout * 3 / 4 }

var errTalksEarly = errors.New("agent sends something before it is welcome")

// admitLink admits an agent that has sent its hello in Fairlead's own protocol. The agent
// sends nothing more until it is answered, so all that a read can return is that the agent
// has gone.
func (s *Server) admitLink(nc *tls.Conn, hello *link.Hello) (ids Identifiers, reason string, err error) {
	if s.cfg.Tokens == nil && s.cfg.Claims.NodeAddresses == nil { // nothing to wait for
		return s.admit(s.ctx, nc, hello.Token, hello.Identifiers)
	}
	ctx, cancel := context.WithCancelCause(s.ctx)
	defer cancel(nil)
	watched := make(chan error, 1)
	go func() {
		_, err := nc.Read(make([]byte, 1))
		if err == nil {
			err = errTalksEarly
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			cancel(err)
		}
		watched <- err
	}()
	ids, reason, err = s.admit(ctx, nc, hello.Token, hello.Identifiers)
	_ = nc.SetReadDeadline(time.Unix(1, 0))
	if gone := <-watched; !errors.Is(gone, os.ErrDeadlineExceeded) {
		if err == nil {
			s.unseat(&ids)
		}
		return ids, "handshake", gone
	}
	_ = nc.SetReadDeadline(time.Time{})
	return ids, reason, err
}
