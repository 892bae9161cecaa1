// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"time"
)

const (
	// nameservers is the greatest number of them that resolv.conf may have. Each gets such a
	// part of the time for a lookup, as it may be the last one that works.
	nameservers = 3
	// silentWait is for how long a nameserver is waited for that did not answer the last
	// time, while another one does.
	silentWait = 200 * time.Millisecond
	// maxNameservers bounds how many are remembered: resolv.conf may change.
	maxNameservers = 16
)

// nameserverTimes bounds how long each nameserver is waited for. Go's resolver asks them one
// after the other, each for five seconds by default and for each search domain from the
// first one on, so that one that is silent takes all the time that a dial has.
type nameserverTimes struct {
	wait time.Duration

	mu   sync.Mutex
	seen map[string]*nameserver
}

// nameserver is what is known of one.
type nameserver struct {
	silent   time.Time // since when it does not answer; zero while it does
	answered time.Time
}

// newResolver returns a resolver for lookups that have this time.
func newResolver(limit time.Duration) *net.Resolver {
	t := &nameserverTimes{wait: limit / nameservers, seen: map[string]*nameserver{}}
	return &net.Resolver{PreferGo: true, Dial: t.dial}
}

// dial connects to a nameserver for one query.
func (t *nameserverTimes) dial(ctx context.Context, network, address string) (net.Conn, error) {
	limit := time.Now().Add(t.patience(address))
	ctx, cancel := context.WithDeadline(ctx, limit)
	defer cancel()
	var d net.Dialer
	nc, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c := nameserverConn{Conn: nc, limit: limit, note: func(err error) { t.note(address, limit, err) }}
	if packets, ok := nc.(net.PacketConn); ok { // by which the resolver tells UDP from TCP
		return &nameserverPackets{c, packets}, nil
	}
	return &c, nil
}

// patience is for how long a nameserver is waited for. It is short only where another one
// has answered since this one fell silent: the only one may be slow.
func (t *nameserverTimes) patience(address string) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.seen[address]; s != nil && !s.silent.IsZero() {
		for _, other := range t.seen {
			if other.answered.After(s.silent) {
				return min(silentWait, t.wait)
			}
		}
	}
	return t.wait
}

// note remembers how a query ended for which the nameserver had time up to limit.
func (t *nameserverTimes) note(address string, limit time.Time, err error) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.seen[address]
	if s == nil {
		if len(t.seen) >= maxNameservers {
			clear(t.seen)
		}
		s = &nameserver{}
		t.seen[address] = s
	}
	switch {
	case err == nil:
		s.silent, s.answered = time.Time{}, now
	case errors.Is(err, os.ErrDeadlineExceeded) && !now.Before(limit) && s.silent.IsZero():
		s.silent = now
	}
}

// nameserverConn is a connection for one query. Its deadline is not behind limit.
type nameserverConn struct {
	net.Conn
	limit time.Time
	note  func(err error)
}

// SetDeadline implements net.Conn.
func (c *nameserverConn) SetDeadline(d time.Time) error {
	if d.IsZero() || d.After(c.limit) {
		d = c.limit
	}
	return c.Conn.SetDeadline(d)
}

// Read implements net.Conn.
func (c *nameserverConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.note(err)
	return n, err
}

// nameserverPackets is a nameserverConn over UDP.
type nameserverPackets struct {
	nameserverConn
	packets net.PacketConn
}

// ReadFrom implements net.PacketConn.
func (c *nameserverPackets) ReadFrom(p []byte) (int, net.Addr, error) { return c.packets.ReadFrom(p) }

// WriteTo implements net.PacketConn.
func (c *nameserverPackets) WriteTo(p []byte, to net.Addr) (int, error) {
	return c.packets.WriteTo(p, to)
}
