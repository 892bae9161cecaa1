// SPDX-License-Identifier: Apache-2.0

package socks5

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
	"github.com/fairlead-dev/fairlead/pkg/gateway/auth"
)

// identify authenticates the client, delays the answer to wrong credentials, and bounds how fast one client guesses.
func (c *conn) identify(ctx context.Context, cred auth.Credentials) (user.Info, error) {
	cred.TLS = c.tls
	guess := c.s.cfg.Authenticator.Guesses(cred)
	if guess && c.s.cfg.Failures.TooMany(c.client()) { // no metric of limits: raising them would not help
		return nil, gateway.Errorf(gateway.ReasonBusy, "try again in some seconds", "the client sent too many wrong passwords")
	}
	if c.s.cfg.Authenticator.Reviews(cred) {
		if !c.s.beginCheck(c.client()) {
			c.s.cfg.Metrics.rejected.Inc()
			return nil, gateway.Errorf(gateway.ReasonBusy, "wait for the answers to the others", "the client has %d tokens in review", maxChecks)
		}
		defer c.s.endCheck(c.client())
	}
	u, err := c.s.cfg.Authenticator.Authenticate(ctx, cred)
	switch {
	case err == nil:
		c.rec.User, c.rec.Groups = u.GetName(), u.GetGroups()
		c.ofOne = c.s.cfg.Authenticator.OfOne(cred, u)
		return u, nil
	case !errors.Is(err, auth.ErrUnauthenticated):
		c.cause = err // it has the API server's address, which strangers need not know
		return nil, gateway.Errorf(gateway.ReasonPathDown, "try again, or ask who runs the proxy", "the API server does not answer whose credentials these are")
	}
	if guess {
		c.s.cfg.Failures.Add(c.client())
	}
	if cred.Login != nil || cred.Token != "" {
		c.s.cfg.Metrics.authFailures.WithLabelValues(c.rec.Protocol).Inc()
		_ = c.raw.SetDeadline(time.Now().Add(c.s.cfg.FailureDelay + c.s.cfg.HandshakeTimeout))
		select {
		case <-time.After(c.s.cfg.FailureDelay):
		case <-ctx.Done():
		}
	}
	return nil, gateway.Errorf(ReasonUnauthenticated, "", "%w", err)
}

func (c *conn) client() netip.Prefix { return clientOf(c.raw) }
