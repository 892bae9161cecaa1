// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/internal/logthrottle"
)

// TokenReviewer is a TokenChecker that can look again at a token which it has accepted.
type TokenReviewer interface {
	TokenChecker
	// Review asks about a token, whatever Check remembers of it. refused says why the
	// token is not good any more; err says that this could not be found out.
	Review(ctx context.Context, token string) (refused, err error)
}

const (
	// reviewTime bounds one review of a connected agent's token.
	reviewTime = 10 * time.Second
	// confirmMost is the longest time between a refusal and the review that confirms it.
	confirmMost = time.Minute
	// expelGraceDefault is for how long an expelled link gets dials that no other link
	// can carry. In that time an agent that has a good token comes back.
	expelGraceDefault = 10 * time.Second
	// lastResortDefault is for how long an upstream agent whose credentials have only expired
	// is the last resort of dials, unless it becomes idle before.
	lastResortDefault = time.Hour
)

// tenure is what decides how long an agent's connection may last.
type tenure struct {
	token        string
	certificates []*x509.Certificate // of the TLS handshake; the first one is the agent's
	reviewAt     time.Time           // guarded by being used before the registry has the link, and by reviewAgents then
	doubted      bool                // the last review refused the token; likewise

	expelled atomic.Int64 // when the link was asked to end, unix nanoseconds; 0 is not
	barred   atomic.Bool  // it gets no dials
	expired  atomic.Bool  // the token or certificate has expired, so that the agent may have a newer one
}

// nextReview is jittered, because the agents of a server that has just started come at once.
func (s *Server) nextReview() time.Time {
	d := s.cfg.ReviewInterval
	return time.Now().Add(d*4/5 + rand.N(d*2/5+1))
}

// reviewAgents reviews the certificates and tokens of connected agents, one after the other,
// so that new agents wait for at most one of these reviews. r is nil if agents need no token.
func (s *Server) reviewAgents(r TokenReviewer) {
	defer s.wg.Done()
	tick := time.NewTicker(max(s.cfg.ReviewInterval/100, 10*time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-tick.C:
		}
		for _, b := range s.reg.list() {
			t := &b.tenure
			if t.expelled.Load() != 0 || time.Now().Before(t.reviewAt) || s.reviewCertificate(b) {
				continue
			}
			if r == nil || t.token == "" {
				t.reviewAt = s.nextReview()
			} else if !s.reviewToken(r, b) {
				break
			}
		}
	}
}

// reviewCertificate expels an agent whose certificate a handshake would refuse now, and
// tells whether it did.
func (s *Server) reviewCertificate(b *Backend) (expelled bool) {
	chain := b.tenure.certificates
	if s.cfg.VerifyAgent == nil || len(chain) == 0 {
		return false
	}
	err := s.cfg.VerifyAgent(chain)
	if err == nil {
		s.m.certificateAgain.With("accepted").Inc()
		return false
	}
	old := time.Now().After(chain[0].NotAfter)
	s.m.certificateAgain.With(map[bool]string{true: "expired", false: "refused"}[old]).Inc()
	s.expel(b, "certificate", old, err)
	return true
}

// reviewToken is false if the API server does not answer, which says nothing about the
// token: the others are reviewed later.
func (s *Server) reviewToken(r TokenReviewer, b *Backend) bool {
	t := &b.tenure
	ctx, cancel := context.WithTimeout(s.ctx, reviewTime)
	defer cancel()
	refused, err := r.Review(ctx, t.token)
	soon := min(s.cfg.ReviewInterval/10, confirmMost)
	switch {
	case s.ctx.Err() != nil:
		return false
	case err != nil:
		s.m.tokenAgain.With("failed").Inc()
		s.throttled.Add(logthrottle.Event{Level: 1, Peer: "reviews", Message: "Cannot review tokens of connected agents: their connections stay", Err: err})
		t.reviewAt = time.Now().Add(soon)
		return false
	case refused == nil:
		s.m.tokenAgain.With("accepted").Inc()
		s.throttled.Forget("reviews")
		t.doubted, t.reviewAt = false, s.nextReview()
	case expired(t.token, time.Now()): // as each projected token does, within the hour
		s.m.tokenAgain.With("expired").Inc()
		s.expel(b, "token", true, refused)
	default:
		s.m.tokenAgain.With("refused").Inc()
		// An API server that could not look answers as it does for a bad token.
		if !t.doubted {
			t.doubted, t.reviewAt = true, time.Now().Add(soon)
			return true
		}
		s.expel(b, "token", expired(t.token, time.Now()), refused)
	}
	return true
}

// expel asks an agent to connect again, with the token and certificate that it has now. Its
// link carries on with what it has, see endExpelled. credential names what is not good any
// more, and old tells that its time is over.
func (s *Server) expel(b *Backend, credential string, old bool, why error) {
	b.tenure.expired.Store(old)
	b.tenure.expelled.Store(time.Now().UnixNano())
	s.vacate(b)
	protocol := "upstream"
	if b.link != nil {
		protocol = "fairlead"
		b.link.GoingAway()
	}
	s.m.expelled.With(protocol).Inc()
	level, message := 1, "Draining the connection of an agent that is not accepted any more"
	if old { // in normal operation: the agent comes back with its next one
		level, message = 5, "Draining the connection of an agent whose credential has expired"
	}
	s.throttled.Add(logthrottle.Event{Level: level, Peer: b.peer, Message: message, Who: b.who(), Why: []any{"credential", credential}, Err: why})
}

// endExpelled ends an expelled link behind its last connection. Until then it is the last
// resort of dials, and after a grace it gets none. An upstream agent cannot be asked to
// connect again while it is connected, so one whose token or certificate has only expired,
// which is normal, remains the last resort for an hour. Without that end, one that was
// deleted would go on as well: the server reviews no expelled agent again.
func (s *Server) endExpelled(b *Backend, now time.Time) {
	at := b.tenure.expelled.Load()
	if at == 0 || now.Sub(time.Unix(0, at)) < s.cfg.ExpelGrace {
		return
	}
	if b.link != nil || !b.tenure.expired.Load() || now.Sub(time.Unix(0, at)) >= s.cfg.LastResort {
		if !b.tenure.barred.Swap(true) {
			s.lost.Store(now.UnixNano()) // dials may wait for the agent
		}
	}
	if b.streams() == 0 {
		b.close()
	}
}

// expired reports whether a token that was accepted once says that its time is over.
func expired(token string, now time.Time) bool {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return false
	}
	var claims struct {
		Exp int64 `json:"exp"`
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(text, &claims) != nil {
		return false
	}
	return claims.Exp != 0 && now.Unix() >= claims.Exp
}
