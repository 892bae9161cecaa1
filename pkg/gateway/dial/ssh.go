// SPDX-License-Identifier: Apache-2.0

package dial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/crypto/ssh"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
)

// SSHOptions are those of "ssh=".
type SSHOptions struct {
	// ConfigFile is the client's configuration file, of which Host, HostName, User, Port,
	// IdentityFile, IdentitiesOnly and UserKnownHostsFile are used. The default is
	// ~/.ssh/config. "none" reads no file.
	ConfigFile string
	// KnownHosts are files with host keys. The default is ~/.ssh/known_hosts and
	// /etc/ssh/ssh_known_hosts.
	KnownHosts []string
	// IdentityFiles are private keys. The default is that of ssh: ~/.ssh/id_ed25519,
	// id_ecdsa and id_rsa.
	IdentityFiles []string
	// AgentSocket is the socket of an SSH agent. The default is $SSH_AUTH_SOCK. "none" uses
	// no agent.
	AgentSocket string
	// KeepAlive is how often a message is sent on a quiet connection. After three without
	// an answer the connection is given up. The default is 15 seconds.
	KeepAlive time.Duration
	// MaxBackoff bounds the time between attempts to connect again. The default is 30
	// seconds.
	MaxBackoff time.Duration
}

// minBackoff is the time before the second attempt to connect.
const minBackoff = time.Second

// sshPath dials through a bastion, over one connection to it.
type sshPath struct {
	o          SSHOptions
	logger     logr.Logger
	target     sshTarget
	life       context.Context
	end        context.CancelFunc
	goroutines sync.WaitGroup
	wake       chan struct{} // asks for an attempt now

	mu      sync.Mutex
	started bool
	client  *sshClient
	err     error         // of the last attempt
	changed chan struct{} // closed when client or err change
}

// sshClient is a connection to the bastion.
type sshClient struct {
	*ssh.Client
	wire *watchedConn
	down chan struct{} // closed when the connection has ended
}

func newSSH(target string, o Options) (*sshPath, error) {
	t, err := parseSSHTarget(target)
	if err != nil {
		return nil, err
	}
	o.SSH.KeepAlive = cmp.Or(o.SSH.KeepAlive, 15*time.Second)
	o.SSH.MaxBackoff = cmp.Or(o.SSH.MaxBackoff, 30*time.Second)
	if err := t.readConfig(&o.SSH); err != nil {
		return nil, err
	}
	p := &sshPath{o: o.SSH, logger: o.Logger, target: t, wake: make(chan struct{}, 1), changed: make(chan struct{})}
	p.life, p.end = context.WithCancel(context.Background())
	return p, nil
}

func (p *sshPath) external() bool { return true }

// Dial opens a connection from the bastion. It resolves names of external hosts there.
func (p *sshPath) Dial(ctx context.Context, to gateway.Destination) (gateway.Conn, error) {
	return p.dial(ctx, to, target(to))
}

func (p *sshPath) dial(ctx context.Context, to gateway.Destination, address string) (gateway.Conn, error) {
	c, err := p.connected(ctx)
	if err != nil {
		return nil, err
	}
	channel, err := c.DialContext(ctx, "tcp", address)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, p.channelError(c, to, err)
	}
	return (&pumped{
		conn: channel, to: to, down: c.down, goroutines: &p.goroutines, end: func() {},
		halfClose: channel.(interface{ CloseWrite() error }).CloseWrite,
		lost: func() error {
			if !c.lost() {
				return nil
			}
			return gateway.Errorf(gateway.ReasonPathDown, "connect again when the bastion can be reached", "the SSH connection to %s broke", p.target)
		},
	}).start(), nil
}

// SSHDialContext returns a function for the Dial of a rest.Config, so that an API server
// behind the bastion is reached over the same SSH connection. The bastion resolves its name.
func SSHDialContext(d Dialer) (func(ctx context.Context, network, address string) (net.Conn, error), error) {
	outer, _ := d.(*dialer)
	if outer == nil {
		return nil, errors.New("this dialer was not made by New")
	}
	p, ok := outer.path.(*sshPath)
	if !ok {
		return nil, errors.New("an API server can be reached only through a dialer for ssh=USER@HOST")
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if !strings.HasPrefix(network, "tcp") {
			return nil, net.UnknownNetworkError(network)
		}
		ctx, cancel := context.WithTimeout(ctx, outer.o.Timeout)
		defer cancel()
		to := gateway.Destination{Host: address, Kind: gateway.KindExternal}
		c, err := p.dial(ctx, to, address)
		if err != nil {
			return nil, asError(ctx, err, to)
		}
		return c, nil
	}, nil
}

// channelError gives a reason to the bastion's answer.
func (p *sshPath) channelError(c *sshClient, to gateway.Destination, err error) error {
	var refused *ssh.OpenChannelError
	if !errors.As(err, &refused) {
		if c.lost() {
			return gateway.Errorf(gateway.ReasonPathDown, "connect again when the bastion can be reached", "the SSH connection to %s broke: %w", p.target, err)
		}
		return fmt.Errorf("through bastion %s: %w", p.target, err)
	}
	text := strings.ToLower(refused.Message)
	reason, hint := gateway.ReasonHostUnreachable, "check on the bastion that it reaches the destination"
	switch {
	case refused.Reason == ssh.Prohibited:
		reason, hint = gateway.ReasonDenied, "see AllowTcpForwarding and PermitOpen in the bastion's sshd_config, and the options of the key in authorized_keys"
	case refused.Reason == ssh.ResourceShortage:
		reason, hint = gateway.ReasonBusy, "close connections, or raise the limit of the bastion's sshd"
	case strings.Contains(text, "refused"):
		reason, hint = gateway.ReasonRefused, "check that something listens on this port"
	case strings.Contains(text, "timed out"), strings.Contains(text, "timeout"):
		reason, hint = gateway.ReasonTimeout, "check that the destination answers the bastion"
	case strings.Contains(text, "not known"), strings.Contains(text, "no such host"), strings.Contains(text, "name resolution"), strings.Contains(text, "no address associated"):
		reason, hint = gateway.ReasonNotFound, "the bastion cannot resolve this name: check its DNS"
	}
	return gateway.Errorf(reason, hint, "bastion %s cannot connect to %s: %w", p.target, to, err)
}

// connected returns the connection to the bastion. It waits for an attempt that is under
// way, or asks for one.
func (p *sshPath) connected(ctx context.Context) (*sshClient, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.life.Err() == nil && !p.started {
		p.started = true
		p.goroutines.Go(p.maintain)
	}
	for {
		if p.life.Err() != nil {
			return nil, gateway.Errorf(gateway.ReasonPathDown, "", "the dialer is closed")
		}
		if p.client != nil && !p.client.lost() {
			return p.client, nil
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

// maintain keeps a connection from the first dial on. When it breaks, maintain connects again
// in the background, so the next dial need not wait.
func (p *sshPath) maintain() {
	backoff := minBackoff
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
		p.publish(c, err)
		if err == nil {
			p.logger.Info("Connected to the bastion", "bastion", p.target)
			backoff = minBackoff
			p.attend(c)
			p.publish(nil, nil)
			if p.life.Err() != nil {
				return
			}
			p.logger.Info("Lost the connection to the bastion, connecting again", "bastion", p.target)
			continue
		}
		p.logger.Error(err, "Cannot connect to the bastion", "bastion", p.target)
		retry := time.After(backoff)
		if gateway.ReasonOf(err) == gateway.ReasonDenied {
			retry = nil // a key is missing or has changed: that needs a person, and attempts may lock an account
		}
		backoff = min(2*backoff, p.o.MaxBackoff)
		select {
		case <-retry:
		case <-p.wake:
		case <-p.life.Done():
			return
		}
	}
}

func (p *sshPath) publish(c *sshClient, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.client, p.err = c, err
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

// Close closes the connection to the bastion, and with it all others.
func (p *sshPath) Close() error {
	p.mu.Lock()
	p.end()
	p.mu.Unlock()
	p.goroutines.Wait()
	return nil
}
