// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/internal/logthrottle"
	"github.com/fairlead-dev/fairlead/pkg/internal/traceparent"
	"github.com/fairlead-dev/fairlead/pkg/internal/version"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/h2"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/link"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/membudget"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/upstream"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/settings"
)

// client is one connection to a server, of either protocol.
type client struct {
	serverID string
	addr     string
	leaving  bool      // the server stops soon; guarded by Agent.mu
	links    int       // that the server is to have
	count    int       // number of servers, as this one says; 0 if it does not
	since    time.Time // when it was taken up
	link     *link.Link
	h2       *h2.Conn
	session  *upstream.Session
	account  *membudget.Account
	done     chan struct{}
	answered atomic.Bool // the server confirmed the drain
	drainAt  atomic.Int64
	taken    uint64    // see unresponsive
	tookAt   time.Time // likewise
}

// holder is the link or the session as what holds memory.
func (c *client) holder() membudget.ChargedMember {
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

// drainSilence is for how long our own server may leave a drain without an answer, send
// nothing else and take nothing, while it has no streams. One that dials later finds
// the link closed and asks another agent.
const drainSilence = 500 * time.Millisecond

// unresponsive reports whether the server has been silent for drainSilence. Only Agent.Drain calls it.
func (c *client) unresponsive() bool {
	now := time.Now()
	if n := c.link.Taken(); n != c.taken || c.tookAt.IsZero() {
		c.taken, c.tookAt = n, now
	}
	silent, _ := c.link.Silence()
	return min(now.Sub(c.tookAt), silent) > drainSilence
}

func (c *client) drained() bool {
	select {
	case <-c.done:
		return true
	default:
	}
	if c.link != nil {
		return c.link.Streams() == 0 && (c.answered.Load() || c.unresponsive())
	}
	return time.Since(time.Unix(0, c.drainAt.Load())) > drainWait && c.session.Len() == 0
}

// errDuplicate says that the address led to a server that is connected already.
var errDuplicate = errors.New("already connected to this server")

// errOwnProtocol says that the server does not speak the only protocol that the agent may use.
var errOwnProtocol = errors.New("server does not speak Fairlead's protocol, which --link=fairlead requires: use Fairlead's server without --link=upstream, or set --link=auto")

// alertNoProtocol is crypto/tls' text of the alert no_application_protocol (RFC 7301, section 3.2). The package exports no error for it.
const alertNoProtocol = "no application protocol"

// open connects to addr. With extra it is a further link to one of these servers.
func (a *Agent) open(ctx context.Context, addr, extra string) error {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.ConnectTimeout)
	defer cancel()
	var cert clientCert
	err := a.connectServer(ctx, addr, extra, &cert)
	if err != nil && !errors.Is(err, errDuplicate) && cert.unused != "" {
		return fmt.Errorf("%w: %s", err, cert.unused)
	}
	return err
}

// connectServer is open without what cert knows of a failure.
func (a *Agent) connectServer(ctx context.Context, addr, extra string, cert *clientCert) error {
	nc, err := a.dialServer(ctx, addr, cert)
	if err != nil {
		return err
	}
	token := ""
	if a.cfg.Token != nil {
		if token, err = a.cfg.Token(); err != nil {
			_ = nc.Close()
			return fmt.Errorf("reading token: %w", err)
		}
	}
	stop := context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if nc.ConnectionState().NegotiatedProtocol == link.ALPN {
		return a.openLink(nc, addr, token, extra) //nolint:contextcheck // ctx bounds connecting; the dials of the link outlive it
	}
	if a.cfg.Protocol == settings.ProtocolFairlead {
		_ = nc.Close()
		return errOwnProtocol
	}
	return a.openUpstream(ctx, nc, addr, token)
}

// dialServer makes the TLS connection, offering our own protocol.
func (a *Agent) dialServer(ctx context.Context, addr string, cert *clientCert) (*tls.Conn, error) {
	cfg, err := a.cfg.TLS()
	if err != nil {
		return nil, err
	}
	cfg = cfg.Clone()
	cfg.NextProtos = slices.Clip(cfg.NextProtos) // Clone shares it with other connections
	cfg.DynamicRecordSizingDisabled = true
	cert.watch(cfg)
	if cfg.ServerName == "" {
		cfg.ServerName, _, _ = net.SplitHostPort(a.cfg.Address)
	}
	cfg.NextProtos = append(cfg.NextProtos, a.cfg.Protocol.NextProtos(link.ALPN)...)
	raw, err := a.dialTCP(ctx, addr)
	if err != nil {
		return nil, err
	}
	batch := link.NewBatchConn(raw, nil)
	nc := tls.Client(batch, cfg)
	if err := nc.HandshakeContext(ctx); err != nil {
		_ = batch.Close()
		if a.cfg.Protocol == settings.ProtocolFairlead && strings.Contains(err.Error(), alertNoProtocol) {
			return nil, errOwnProtocol
		}
		return nil, fmt.Errorf("TLS with %s: %w", addr, err)
	}
	return nc, nil
}

// openLink introduces the agent in our own protocol.
func (a *Agent) openLink(nc *tls.Conn, addr, token, extra string) error {
	a.mu.Lock()
	have := strings.Join(a.serversLocked(true), ",")
	a.mu.Unlock()
	if extra != "" {
		have = ""
	}
	w, err := link.SendHello(nc, link.Hello{AgentID: a.cfg.AgentID, Identifiers: a.cfg.Identifiers, Token: token,
		Window: a.cfg.Link.Window, Have: have, Only: extra, Traces: true, Version: version.Get().Version})
	if err != nil {
		_ = nc.Close()
		var re *link.RefusedError
		if errors.As(err, &re) && re.Reason == link.ReasonDuplicate {
			return heldBy(have)
		}
		return err
	}
	c := &client{serverID: w.ServerID, addr: addr, links: max(w.Links, 1), done: make(chan struct{})}
	if a.cfg.Links > 0 {
		c.links = a.cfg.Links
	}
	cfg := a.cfg.Link
	cfg.OnDial = func(st *link.Stream, payload string) {
		address, parent := link.CutTrace(payload)
		a.dial(st, address, traceparent.Parse(parent))
	}
	cfg.OnDrained = func() { c.answered.Store(true) }
	cfg.OnDrain = func() { a.serverLeaves(c) }
	cfg.OnViolation = func(rule string, first bool) { a.badServer(w.ServerID, addr, rule, first) }
	cfg.OnUnknown = func(typ byte, first bool) {
		a.m.unknownFrames.Inc()
		if first {
			a.throttled.Add(logthrottle.Event{Level: 1, Peer: addr, Message: "Skipping frames of an unknown type: the server may be newer",
				Who: []any{"server", w.ServerID, "address", addr}, Why: []any{"type", typ}})
		}
	}
	cfg.Counters = link.Counters{Sent: &a.m.toServer, Received: &a.m.fromServer}
	c.link = link.New(nc, w.Window, cfg)
	if !a.add(c, w.ServerCount, extra != "") {
		c.link.Close()
		return heldBy(w.ServerID)
	}
	go a.serve(c, func() error { return a.runLink(c) })
	return nil
}

// runLink serves a link. Its end is an error of the stream, unless the server has said
// that it leaves.
func (a *Agent) runLink(c *client) error {
	err := c.link.Run()
	a.mu.Lock()
	leaving := c.leaving
	a.mu.Unlock()
	if !leaving {
		a.m.streamEnded(err)
	}
	return err
}

// badServer counts a rule that a server broke, and logs it if it did so for the first
// time.
func (a *Agent) badServer(id, addr, rule string, first bool) {
	if first {
		a.throttled.Add(logthrottle.Event{Level: 1, Peer: addr, Message: "The server breaks the protocol", Who: []any{"server", id, "address", addr}, Err: errors.New(rule)})
	}
	a.m.violations.With(rule).Inc()
}

// serverLeaves notes that a server stops soon or wants a new connection, so that one is looked for.
func (a *Agent) serverLeaves(c *client) {
	a.mu.Lock()
	again := c.leaving
	c.leaving = true
	a.mu.Unlock()
	if again {
		return
	}
	a.cfg.Logger.V(1).Info("The server drains its connection: connecting again", "server", c.serverID, "address", c.addr)
	a.lose(c)
}

// linksLocked is the number of links to a server that stays.
func (a *Agent) linksLocked(serverID string) (n int) {
	for _, c := range a.clients {
		if c.serverID == serverID && !c.leaving {
			n++
		}
	}
	return n
}

// add takes up a link, unless it is to a server that is connected already and not a
// further one that it wants: several addresses may lead to one server.
func (a *Agent) add(c *client, count int, extra bool) bool {
	a.mu.Lock()
	if n := a.linksLocked(c.serverID); n > 0 && (!extra || n >= c.links) {
		a.mu.Unlock()
		return false
	}
	a.wg.Add(1)
	c.count = count
	a.clients = append(a.clients, c)
	a.m.serverConns.Set(int64(len(a.serversLocked(false))))
	draining := a.draining.Load()
	a.mu.Unlock()
	c.since = time.Now()
	c.account = a.memory.Open(c.serverID, c.holder())
	a.throttled.Add(logthrottle.Event{Level: 1, Peer: c.serverID, Message: "Connected to a server", Who: []any{"address", c.addr}, Why: []any{"server", c.serverID}})
	if draining {
		c.drain()
	}
	return true
}

// settled is for how long a link has to live for what was logged of its server before
// to be over. Until then it may be a server that lets agents in and breaks the protocol
// each time, or one that fails again and again.
const settled = time.Minute

// serve runs a connection, and forgets it when it has ended.
func (a *Agent) serve(c *client, run func() error) {
	defer a.wg.Done()
	err := run()
	var pe *link.ProtocolError
	var ce *h2.ConnError
	broke := errors.As(err, &pe) || errors.As(err, &ce)
	if broke {
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
	if !broke && time.Since(c.since) >= settled {
		a.throttled.Forget(c.addr)
		a.throttled.Forget(c.serverID)
	}
	a.throttled.Add(logthrottle.Event{Level: 1, Peer: c.addr, Message: "The link to a server ended", Who: []any{"server", c.serverID, "address", c.addr}, Err: err})
	a.lose(c)
}
