// SPDX-License-Identifier: Apache-2.0

package socks5

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
	"github.com/fairlead-dev/fairlead/pkg/gateway/internal/gone"
	"github.com/fairlead-dev/fairlead/pkg/internal/traceparent"
)

// protocol is one of the two, as it is spoken on one connection.
type protocol interface {
	name() string
	// handshake reads everything up to the request and fills in the user and the
	// destination of the record.
	handshake(ctx context.Context) (target, error)
	// accept tells the client that it is connected.
	accept() error
	// refuse tells the client why it is not.
	refuse(err *gateway.Error)
}

type target struct {
	client user.Info
	host   string
	port   uint16
	trace  traceparent.Context // that the client has sent
}

// conn is one connection of a client.
type conn struct {
	s        *Server
	nc       gateway.Conn // with TLS if there is any
	raw      net.Conn
	in       *bufio.Reader
	tls      *tls.ConnectionState
	stranger *stranger // nil if the server is busy and refuses the connection
	ofOne    bool      // the client has credentials of its own
	cause    error     // of a refusal that does not say it; for the record
	rec      Record
}

func (s *Server) serve(raw net.Conn, st *stranger) {
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { gone.Abort(raw) })
	c := &conn{s: s, raw: raw, stranger: st, rec: Record{Time: time.Now(), Client: raw.RemoteAddr().String()}}
	defer func() {
		if stop() {
			_ = raw.Close()
		}
		c.rec.Seconds = time.Since(c.rec.Time).Seconds()
		s.cfg.Metrics.ended(&c.rec)
		s.cfg.Audit(c.rec)
	}()
	_ = raw.SetDeadline(time.Now().Add(s.cfg.HandshakeTimeout))
	if err := c.secure(ctx); err != nil {
		_ = c.fail(err)
		return
	}
	p, err := c.protocol()
	if err != nil {
		_ = c.fail(err)
		return
	}
	c.rec.Protocol = p.name()
	dest, err := c.open(ctx, p)
	if err != nil {
		p.refuse(c.fail(err))
		c.linger()
		return
	}
	defer dest.Close()
	if err := p.accept(); err != nil {
		_ = c.fail(gateway.Errorf(ReasonClientGone, "", "send the reply: %w", err))
		return
	}
	stopDest := context.AfterFunc(ctx, func() { _ = dest.Close() })
	defer stopDest()
	relay(c, dest)
}

// secure makes TLS if the listener has it.
func (c *conn) secure(ctx context.Context) error {
	if c.s.cfg.TLS == nil {
		nc, ok := c.raw.(gateway.Conn)
		if !ok {
			return fmt.Errorf("a connection of type %T cannot be closed in one direction", c.raw)
		}
		c.nc, c.in = nc, bufio.NewReader(nc)
		return nil
	}
	t := tls.Server(c.raw, c.s.cfg.TLS)
	if err := t.HandshakeContext(ctx); err != nil {
		c.answerWithoutTLS(err)
		return gateway.Errorf(ReasonMalformed, "", "TLS handshake: %w", err)
	}
	state := t.ConnectionState()
	c.nc, c.in, c.tls = t, bufio.NewReader(t), &state
	return nil
}

// answerWithoutTLS tells a client that forgot TLS what is wrong, in its own protocol.
func (c *conn) answerWithoutTLS(err error) {
	var header tls.RecordHeaderError
	if !errors.As(err, &header) || header.Conn == nil {
		return
	}
	switch first := header.RecordHeader[0]; {
	case first == socksVersion:
		_, _ = c.raw.Write([]byte{socksVersion, 0xff})
	case isLetter(first):
		_, _ = io.WriteString(c.raw, "HTTP/1.0 400 Bad Request\r\nConnection: close\r\n\r\nThis port speaks TLS: use https:// for the proxy\n")
	}
}

func isLetter(b byte) bool { return b|0x20 >= 'a' && b|0x20 <= 'z' }

// protocol tells by the first byte what the client speaks.
func (c *conn) protocol() (protocol, error) {
	first, err := c.in.Peek(1)
	if err != nil {
		return nil, readError("first byte", err)
	}
	switch {
	case first[0] == socksVersion:
		return &socks{conn: c}, nil
	case isLetter(first[0]):
		return &connect{conn: c}, nil
	case first[0] == 4: // SOCKS4 has a reply of its own: request rejected
		_, _ = c.nc.Write([]byte{0, 0x5b, 0, 0, 0, 0, 0, 0})
		c.linger()
		return nil, gateway.Errorf(ReasonMalformed, "use SOCKS5", "the client speaks SOCKS4")
	}
	return nil, gateway.Errorf(ReasonMalformed, "", "the first byte %#02x belongs to neither SOCKS5 nor HTTP", first[0])
}

// readError says why a handshake ended before its end.
func readError(what string, err error) error {
	var timeout net.Error
	switch {
	case errors.As(err, &timeout) && timeout.Timeout():
		return gateway.Errorf(gateway.ReasonTimeout, "", "the client did not complete the handshake in time")
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return gateway.Errorf(ReasonClientGone, "", "the client closed the connection before the end of the handshake")
	}
	return gateway.Errorf(ReasonClientGone, "", "read %s: %w", what, err)
}

// fail records why there is no connection and returns it as a gateway.Error.
func (c *conn) fail(err error) *gateway.Error {
	if c.stranger != nil && c.stranger.closed.Load() {
		err = errMadeRoom
	}
	var e *gateway.Error
	if !errors.As(err, &e) {
		e = &gateway.Error{Reason: gateway.ReasonOf(err), Err: err}
	}
	c.rec.Result, c.rec.Error = string(e.Reason), e.Error()
	if c.cause != nil {
		c.rec.Error = fmt.Sprintf("%v (%v)", c.rec.Error, c.cause)
	}
	return e
}

// open does everything from the handshake to the dial.
func (c *conn) open(ctx context.Context, p protocol) (gateway.Conn, error) {
	t, err := p.handshake(ctx)
	if err != nil {
		return nil, err
	}
	if c.stranger == nil {
		return nil, gateway.Errorf(gateway.ReasonBusy, "close other connections, or raise --max-connections or --max-connections-per-client",
			"too many connections")
	}
	c.s.known(c.stranger)
	if c.ofOne && !c.s.countByUser(c.stranger, t.client.GetName()) {
		c.s.cfg.Metrics.rejected.Inc()
		return nil, gateway.Errorf(gateway.ReasonBusy, "close other connections, or raise --max-connections-per-client",
			"%q has too many connections", t.client.GetName())
	}
	_ = c.raw.SetDeadline(time.Time{})
	ctx, cancel := context.WithTimeoutCause(ctx, c.s.cfg.DialTimeout, gateway.Errorf(gateway.ReasonTimeout, "", "no connection within %v", c.s.cfg.DialTimeout))
	defer cancel()
	ctx = traceparent.With(ctx, t.trace)
	present, unwatch := c.watch(ctx)
	dest, err := c.dial(ctx, present, t)
	unwatch()
	if err != nil {
		if cause := context.Cause(present); cause != nil && present.Err() != nil && !errors.Is(cause, context.Canceled) {
			return nil, cause
		}
		return nil, err
	}
	return dest, nil
}

// dial opens the connection to the client's target. It gives up when the client goes, which ends present.
func (c *conn) dial(ctx, present context.Context, t target) (gateway.Conn, error) {
	if checker, ok := c.s.cfg.Authorizer.(gateway.HostChecker); ok {
		if err := checker.CheckHost(t.host, t.port); err != nil {
			return nil, err
		}
	}
	d, err := c.lookUp(ctx, present, t)
	if err != nil {
		return nil, err
	}
	dialCtx := gateway.WithDialed(present, func(other gateway.Destination) { d = other })
	dialCtx = gateway.WithLookup(dialCtx, func(attempt context.Context, ask func(context.Context)) error {
		return c.inPlace(ctx, attempt, t, ask)
	})
	dialCtx = gateway.WithCheck(dialCtx, func(other gateway.Destination) error {
		return c.s.cfg.Authorizer.Authorize(present, t.client, other)
	})
	start := time.Now()
	dest, err := c.s.cfg.Dialer.Dial(dialCtx, d)
	c.rec.setDestination(d)
	c.s.cfg.Metrics.dialed(d.Kind, time.Since(start))
	return dest, err
}

// find resolves the client's target and authorizes it.
func (c *conn) find(ctx context.Context, t target) (gateway.Destination, error) {
	byName := nameCheck{client: t.client}
	if byName.authorizer, _ = c.s.cfg.Authorizer.(gateway.NameAuthorizer); byName.authorizer != nil {
		ctx = gateway.WithNameCheck(ctx, byName.check)
	}
	d, err := c.s.cfg.Resolver.Resolve(ctx, t.host, t.port)
	if err == nil {
		c.rec.setDestination(d)
		err = c.s.cfg.Authorizer.Authorize(ctx, t.client, d)
	}
	if err == nil || !byName.hides(err) {
		return d, err
	}
	c.cause = err
	return d, byName.refusal(t)
}

var errClientGone = gateway.Errorf(ReasonClientGone, "", "the client closed its connection before the reply")

// watch cancels ctx when the client closes its connection. What the client sends ahead of
// the reply ends the watch and stays in the buffer. The function that it returns ends it.
func (c *conn) watch(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, err := c.in.Peek(1)
		var timeout net.Error
		if err != nil && (!errors.As(err, &timeout) || !timeout.Timeout()) {
			cancel(errClientGone)
		}
	}()
	return ctx, func() {
		_ = c.raw.SetReadDeadline(time.Unix(1, 0))
		<-done
		_ = c.raw.SetReadDeadline(time.Time{})
	}
}

// checkTarget refuses what can be no host or port. Names come from SOCKS5 as any bytes.
func checkTarget(host string, port uint16) error {
	switch {
	case port == 0:
		return gateway.Errorf(ReasonMalformed, "", "port 0 cannot be connected to")
	case host == "" || len(host) > 255:
		return gateway.Errorf(ReasonMalformed, "", "the host has %d bytes: 1 to 255 are allowed", len(host))
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return nil
	}
	if strings.Trim(host, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") != "" || strings.Contains(host, "..") || host[0] == '.' {
		return gateway.Errorf(ReasonMalformed, "", "%.64q is no host name", host)
	}
	return nil
}

const (
	lingerTime  = time.Second
	lingerBytes = 256 << 10
)

// linger lets the client read its reply before the connection is closed: closing with bytes
// that were not read would reset it.
func (c *conn) linger() {
	_ = c.nc.CloseWrite()
	_ = c.raw.SetReadDeadline(time.Now().Add(lingerTime))
	rest := io.Reader(c.nc)
	if c.in != nil {
		rest = c.in
	}
	_, _ = io.CopyN(io.Discard, rest, lingerBytes)
}
