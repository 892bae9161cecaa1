// SPDX-License-Identifier: Apache-2.0

package dial

import (
	"context"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
)

// connected returns the connection to the bastion. It waits for an attempt that is under
// way, or asks for one, unless the last one has just failed.
func (p *sshPath) connected(ctx context.Context) (*sshClient, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.begin()
	for {
		if p.life.Err() != nil {
			return nil, gateway.Errorf(gateway.ReasonPathDown, "", "the dialer is closed")
		}
		if p.client != nil && !p.client.lost() {
			return p.client, nil
		}
		if p.err != nil && time.Now().Before(p.holds) {
			return nil, p.err
		}
		changed := p.changed
		p.mu.Unlock()
		select {
		case p.wake <- struct{}{}:
		default:
		}
		select {
		case <-changed:
		case <-p.life.Done():
		case <-ctx.Done():
		}
		p.mu.Lock()
		switch {
		case p.client == nil && p.err != nil:
			return nil, p.err
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		}
	}
}

// begin has the connection maintained from now on. The caller holds p.mu.
func (p *sshPath) begin() {
	if p.life.Err() == nil && !p.started {
		p.started = true
		p.goroutines.Go(p.maintain)
	}
}

// maintain keeps a connection from the first dial on. When it breaks, maintain connects again
// in the background, so the next dial need not wait. An attempt follows another one at once only after a connection
// that has lasted: a server may close each after the login, and refused logins may lock an account.
func (p *sshPath) maintain() {
	backoff := p.o.MinBackoff
	for {
		c, err := p.attempt()
		if p.life.Err() != nil {
			return
		}
		// This attempt also answers a request for a connection made before it ended.
		select {
		case <-p.wake:
		default:
		}
		if err == nil {
			p.publish(c, nil, 0)
			p.logger.Info("Connected to the bastion", "bastion", p.target)
			began := time.Now()
			p.attend(c)
			if p.life.Err() != nil {
				return
			}
			p.logger.Info("Lost the connection to the bastion, connecting again", "bastion", p.target)
			lasted := time.Since(began)
			if lasted > 10*p.o.MinBackoff {
				backoff = p.o.MinBackoff
				p.publish(nil, nil, 0)
				continue
			}
			err = gateway.Errorf(gateway.ReasonPathDown, "see the log of its sshd", "bastion %s closed the SSH connection after %v", p.target, lasted.Round(time.Millisecond))
		} else {
			p.logger.Error(err, "Cannot connect to the bastion", "bastion", p.target)
		}
		hold, again := p.o.MinBackoff, time.After(backoff)
		if gateway.ReasonOf(err) == gateway.ReasonDenied {
			hold, again = backoff, nil // a key is missing or has changed: that needs a person, and the next dial
		}
		backoff = min(2*backoff, p.o.MaxBackoff)
		p.publish(nil, err, hold)
		if !p.pause(hold, again) {
			return
		}
	}
}

// pause waits for some time, and then until a dial asks for an attempt or it is time for one again. It returns false when the
// path is closed.
func (p *sshPath) pause(hold time.Duration, again <-chan time.Time) bool {
	select {
	case <-time.After(hold):
	case <-p.life.Done():
		return false
	}
	select {
	case <-again:
	case <-p.wake:
	case <-p.life.Done():
		return false
	}
	return true
}

// publish tells dials about a connection, or why there is none. That error holds for some time.
func (p *sshPath) publish(c *sshClient, err error, hold time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.client, p.err, p.holds = c, err, time.Now().Add(hold)
	close(p.changed)
	p.changed = make(chan struct{})
}

// attend waits until a connection has ended.
func (p *sshPath) attend(c *sshClient) {
	p.goroutines.Go(func() {
		_ = c.Wait()
		c.wire.broken.Store(true)
		close(c.down)
	})
	p.goroutines.Go(func() { p.keepAlive(c) })
	select {
	case <-c.down:
	case <-p.life.Done():
		_ = c.Close()
		<-c.down
	}
}

func (p *sshPath) keepAlive(c *sshClient) {
	tick := time.NewTicker(p.o.KeepAlive)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-c.down:
			return
		}
		answered := make(chan struct{})
		p.goroutines.Go(func() {
			defer close(answered)
			_, _, _ = c.SendRequest("keepalive@openssh.com", true, nil)
		})
		select {
		case <-answered:
		case <-c.down:
			return
		case <-time.After(3 * p.o.KeepAlive):
			p.logger.Info("The bastion does not answer", "bastion", p.target)
			_ = c.Close()
			return
		}
	}
}
