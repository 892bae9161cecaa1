// SPDX-License-Identifier: Apache-2.0

package httplimits

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"slices"
	"sync"
)

// listener bounds the number of open connections.
type listener struct {
	net.Listener
	limit int
	quick bool // answers take a bounded time

	mu    sync.Mutex
	conns []*conn // the one whose last request is longest ago first
}

// Accept returns the next connection for which there is a place.
func (l *listener) Accept() (net.Conn, error) {
	for {
		nc, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c := l.place(nc); c != nil {
			return c, nil
		}
		_ = nc.Close()
	}
}

// place takes up a connection. If the listener is full, another one is closed for it, or
// it gets no place.
func (l *listener) place(nc net.Conn) *conn {
	c := &conn{Conn: nc, l: l, host: hostOf(nc.RemoteAddr())}
	l.mu.Lock()
	var out *conn
	if len(l.conns) >= l.limit {
		if out = l.victim(c.host); out == nil {
			l.mu.Unlock()
			return nil
		}
		l.forget(out)
	}
	l.conns = append(l.conns, c)
	l.mu.Unlock()
	if out != nil {
		_ = out.Conn.Close()
	}
	return c
}

// victim is the connection that makes room for one of the host, or nil; mu is held. It is
// the one that has waited longest without a request: a peer can hold places with silence
// or with a request that does not end, while a probe needs its place for a moment only.
// If all are being answered, a peer may still hold the places by reading nothing. Then it
// is the oldest of the host with the most, if the other one has fewer.
func (l *listener) victim(host string) *conn {
	if i := slices.IndexFunc(l.conns, func(c *conn) bool { return c.requests == 0 }); i >= 0 {
		return l.conns[i]
	}
	if !l.quick {
		return nil
	}
	count := map[string]int{}
	for _, c := range l.conns {
		count[c.host]++
	}
	var out *conn
	for _, c := range l.conns {
		if count[c.host] > count[host]+1 && (out == nil || count[c.host] > count[out.host]) {
			out = c
		}
	}
	return out
}

// forget gives up a connection's place, once; mu is held.
func (l *listener) forget(c *conn) {
	if i := slices.Index(l.conns, c); i >= 0 {
		l.conns = slices.Delete(l.conns, i, i+1)
	}
}

// conn is a connection with a place.
type conn struct {
	net.Conn
	l        *listener
	host     string
	requests int // being answered; guarded by l.mu
}

// Close gives up the place and closes the connection.
func (c *conn) Close() error {
	c.l.mu.Lock()
	c.l.forget(c)
	c.l.mu.Unlock()
	return c.Conn.Close()
}

// NetConn returns the connection that has the place.
func (c *conn) NetConn() net.Conn { return c.Conn }

// CloseWrite ends one direction where the connection can do that.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// begin notes that a request is answered. Until that is over the connection does not wait.
func (c *conn) begin() {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	c.requests++
}

// end notes that a request was answered, so that the connection waits from now on.
func (c *conn) end() {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	c.requests--
	if i := slices.Index(c.l.conns, c); i >= 0 {
		c.l.conns = append(slices.Delete(c.l.conns, i, i+1), c)
	}
}

// connKey is that of a request's connection in its context.
type connKey struct{}

func withConn(ctx context.Context, nc net.Conn) context.Context {
	if c := placed(nc); c != nil {
		return context.WithValue(ctx, connKey{}, c)
	}
	return ctx
}

// placed is the connection of a listener of ours behind a server's; nil if there is none.
func placed(nc net.Conn) *conn {
	if t, ok := nc.(*tls.Conn); ok {
		nc = t.NetConn()
	}
	c, _ := nc.(*conn)
	return c
}

// serving wraps a handler so that its connections are known not to wait.
func serving(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(connKey{}).(*conn); ok {
			c.begin()
			defer c.end()
		}
		h.ServeHTTP(w, r)
	})
}

// Yield notes that a request is worth no place, because its client has not proved who it is: its connection may make room
// for another one, as if it waited, until the function that Yield returns is called. The context is that of the request.
func Yield(ctx context.Context) (end func()) {
	c, ok := ctx.Value(connKey{}).(*conn)
	if !ok {
		return func() {}
	}
	add := func(n int) {
		c.l.mu.Lock()
		defer c.l.mu.Unlock()
		c.requests += n
	}
	add(-1)
	return func() { add(1) }
}

// noteHijack has a connection that a handler took over count as one that is answered,
// until it is closed.
func noteHijack(nc net.Conn, state http.ConnState) {
	if c := placed(nc); c != nil && state == http.StateHijacked {
		c.begin()
	}
}

// hostOf is the host of a peer: all peers of a socket have the same.
func hostOf(addr net.Addr) string {
	host, _, err := net.SplitHostPort(addr.String())
	if err != nil {
		return ""
	}
	return host
}
