package agent

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/compat"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/h2"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/ledger"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/link"
)

// client is one connection to a server, of either protocol.
type client struct {
	serverID string
	addr     string
	leaving  bool // the server stops soon; guarded by Agent.mu
	link     *link.Link
	h2       *h2.Conn
	session  *compat.Session
	account  *ledger.Account
	done     chan struct{}
	answered atomic.Bool // the server confirmed the drain
	drainAt  atomic.Int64
}

// holder is the link or the session as what holds memory.
func (c *client) holder() ledger.Payer {
	if c.link != nil {
		return c.link
	}
	return c.session
}

func (c *client) close() {
	if c.link != nil {
		c.link.Close()
	} else {
		c.h2.Close()
	}
}

func (c *client) drain() {
	c.drainAt.Store(time.Now().UnixNano())
	if c.link != nil {
		c.link.Drain()
	} else {
		c.session.Drain()
	}
}

// drainWait is for how long dials may still come from an upstream server, which
// does not confirm a drain.
const drainWait = 300 * time.Millisecond

func (c *client) drained() bool {
	select {
	case <-c.done:
		return true
	default:
	}
	if c.link != nil {
		return c.answered.Load() && c.link.Streams() == 0
	}
	return time.Since(time.Unix(0, c.drainAt.Load())) > drainWait && c.session.Len() == 0
}

// errDuplicate says that the address led to a server that is connected already.
var errDuplicate = errors.New("already connected to this server")

// connectServer opens one link, and the further ones that the server wants.
func (a *Agent) connectServer(ctx context.Context, addr string) error {
	c, links, err := a.open(ctx, addr, "")
	if err != nil {
		return err
	}
	if c.link == nil {
		return nil
	}
	if a.cfg.Links > 0 {
		links = a.cfg.Links
	}
	for i := 1; i < links; i++ {
		if _, _, err := a.open(ctx, addr, c.serverID); err != nil {
			a.cfg.Logf(2, "further link to server %s: %v", c.serverID, err)
			break
		}
	}
	return nil
}

// open connects to addr. With extra it is a further link to that server.
func (a *Agent) open(ctx context.Context, addr, extra string) (*client, int, error) {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.ConnectTimeout)
	defer cancel()
	nc, err := a.dialServer(ctx, addr)
	if err != nil {
		return nil, 0, err
	}
	token := ""
	if a.cfg.Token != nil {
		if token, err = a.cfg.Token(); err != nil {
			_ = nc.Close()
			return nil, 0, fmt.Errorf("reading token: %w", err)
		}
	}
	deadline, _ := ctx.Deadline()
	_ = nc.SetDeadline(deadline)
	if nc.ConnectionState().NegotiatedProtocol == link.ALPN {
		return a.openLink(nc, addr, token, extra) //nolint:contextcheck // ctx bounds connecting; the dials of the link outlive it
	}
	c, err := a.openReference(ctx, nc, addr, token)
	return c, 1, err
}

// dialServer makes the TLS connection, offering our own protocol.
func (a *Agent) dialServer(ctx context.Context, addr string) (*tls.Conn, error) {
	cfg, err := a.cfg.TLS()
	if err != nil {
		return nil, err
	}
	cfg = cfg.Clone()
	cfg.DynamicRecordSizingDisabled = true
	if cfg.ServerName == "" {
		cfg.ServerName, _, _ = net.SplitHostPort(a.cfg.Address)
	}
	if !a.cfg.ReferenceOnly {
		cfg.NextProtos = append(cfg.NextProtos, link.ALPN)
	}
	cfg.NextProtos = append(cfg.NextProtos, "h2")
	var d net.Dialer
	raw, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	nc := tls.Client(link.NewBatchConn(raw), cfg)
	if err := nc.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, fmt.Errorf("TLS with %s: %w", addr, err)
	}
	return nc, nil
}

// openLink introduces the agent in our own protocol.
func (a *Agent) openLink(nc *tls.Conn, addr, token, extra string) (*client, int, error) {
	a.mu.Lock()
	have := strings.Join(a.serversLocked(true), ",")
	a.mu.Unlock()
	if extra != "" {
		have = ""
	}
	w, err := link.SendHello(nc, link.Hello{AgentID: a.cfg.AgentID, Identifiers: a.cfg.Identifiers, Token: token,
		Window: a.cfg.Link.Window, Have: have, Only: extra})
	if err != nil {
		_ = nc.Close()
		var re *link.RefusedError
		if errors.As(err, &re) && re.Reason == link.ReasonDuplicate {
			return nil, 0, errDuplicate
		}
		return nil, 0, err
	}
	_ = nc.SetDeadline(time.Time{})
	c := &client{serverID: w.ServerID, addr: addr, done: make(chan struct{})}
	cfg := a.cfg.Link
	cfg.OnDial = func(st *link.Stream, address string) { a.dial(st, address) }
	cfg.OnDrained = func() { c.answered.Store(true) }
	cfg.OnDrain = func() { a.serverLeaves(c) }
	cfg.OnViolation = func(rule string, first bool) { a.badServer(w.ServerID, addr, rule, first) }
	cfg.Counters = link.Counters{Sent: &a.m.toServer, Received: &a.m.fromServer}
	c.link = link.New(nc, w.Window, cfg)
	a.add(c, w.ServerCount)
	go a.serve(c, c.link.Run)
	return c, max(w.Links, 1), nil
}

// badServer counts a rule that a server broke, and logs it if it did so for the first
// time.
func (a *Agent) badServer(id, addr, rule string, first bool) {
	if first {
		a.cfg.Logf(1, "server %q at %s breaks the protocol: %s", id, addr, rule)
	}
	a.m.violations.With(rule).Inc()
}

// serverLeaves notes that a server stops soon, so that another is looked for.
func (a *Agent) serverLeaves(c *client) {
	a.mu.Lock()
	c.leaving = true
	a.mu.Unlock()
	a.cfg.Logf(1, "server %s is going away", c.serverID)
	a.poke()
}

func (a *Agent) add(c *client, count int) {
	a.wg.Add(1)
	c.account = a.book.Open(c.serverID, c.holder())
	a.mu.Lock()
	a.clients = append(a.clients, c)
	if count > 0 {
		a.count = count
	}
	a.m.serverConns.Set(int64(len(a.serversLocked(false))))
	draining := a.draining.Load()
	a.mu.Unlock()
	a.cfg.Logf(1, "connected to server %s at %s", c.serverID, c.addr)
	if draining {
		c.drain()
	}
}

func (a *Agent) serve(c *client, run func() error) {
	defer a.wg.Done()
	err := run()
	var pe *link.ProtocolError
	var ce *h2.ConnError
	if errors.As(err, &pe) || errors.As(err, &ce) {
		a.m.violations.With("protocol").Inc() // what it was is logged below
	}
	c.account.Leave(c.holder())
	close(c.done)
	a.mu.Lock()
	for i, o := range a.clients {
		if o == c {
			a.clients = append(a.clients[:i:i], a.clients[i+1:]...)
			break
		}
	}
	a.m.serverConns.Set(int64(len(a.serversLocked(false))))
	a.mu.Unlock()
	a.m.serverFailures.With("from_server").Inc()
	a.cfg.Logf(1, "link to server %s ended: %v", c.serverID, err)
	a.poke()
}
