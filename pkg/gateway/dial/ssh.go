// SPDX-License-Identifier: Apache-2.0

package dial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
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
	// IdentitiesOnly uses of the agent's keys only those of IdentityFiles, or of FILE.pub next to them.
	IdentitiesOnly bool
	// AgentSocket is the socket of an SSH agent. The default is $SSH_AUTH_SOCK. "none" uses
	// no agent.
	AgentSocket string
	// KeepAlive is how often a message is sent on a quiet connection. After three without
	// an answer the connection is given up. The default is 15 seconds.
	KeepAlive time.Duration
	// MinBackoff is the time before the second attempt to connect, which doubles up to MaxBackoff. It
	// starts again after a connection that lasted ten times as long. The defaults are 1 and 30
	// seconds.
	MinBackoff, MaxBackoff time.Duration
}

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
	holds   time.Time     // until then, err is the answer to dials
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
	o.SSH.MinBackoff = cmp.Or(o.SSH.MinBackoff, time.Second)
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
		to, err := externalAt(address)
		if err != nil {
			return nil, err
		}
		c, err := p.dial(ctx, to, address)
		if err != nil {
			return nil, asError(ctx, err, to)
		}
		return c, nil
	}, nil
}

// externalAt returns the destination of host:port outside of the cluster.
func externalAt(address string) (gateway.Destination, error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return gateway.Destination{}, err
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return gateway.Destination{}, fmt.Errorf("port of %s: %w", address, err)
	}
	return gateway.Destination{Host: host, Port: uint16(port), Kind: gateway.KindExternal}, nil
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

// Close closes the connection to the bastion, and with it all others.
func (p *sshPath) Close() error {
	p.mu.Lock()
	p.end()
	p.mu.Unlock()
	p.goroutines.Wait()
	return nil
}
