package server

import (
	"context"
	"crypto/tls"
	"errors"
	"os"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/link"
)

// admit authenticates an agent and gives it a seat, which the caller gives back when the
// agent is gone. The reason is the label of the metric. The context ends with the agent.
func (s *Server) admit(ctx context.Context, nc *tls.Conn, token, identifiers string) (ids Identifiers, reason string, err error) {
	if ids, err = ParseIdentifiers(identifiers); err != nil {
		return ids, "identifiers", err
	}
	node := ""
	ctx, cancel := context.WithTimeout(ctx, s.cfg.HandshakeTimeout)
	defer cancel()
	if s.cfg.Tokens != nil {
		if node, err = s.cfg.Tokens.Check(ctx, nc.RemoteAddr().String(), token); err != nil {
			s.m.tokenReview.With("refused").Inc()
			return ids, "token", err
		}
		s.m.tokenReview.With("accepted").Inc()
	}
	state := nc.ConnectionState()
	if err := s.cfg.Claims.check(ctx, &state, node, &ids); err != nil {
		return ids, "claims", err
	}
	if s.goingDown() {
		return ids, "draining", errStopping
	}
	if !s.seats.IncBelow(s.cfg.MaxAgents) {
		return ids, "limit", errTooManyAgents
	}
	return ids, "", nil
}

var errTalksEarly = errors.New("agent sends something before it is welcome")

// admitLink admits an agent that has introduced itself in our own protocol. It says
// nothing more until it is answered, so all there may be to read is that it has gone.
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
			s.seats.Dec()
		}
		return ids, "handshake", gone
	}
	_ = nc.SetReadDeadline(time.Time{})
	return ids, reason, err
}
