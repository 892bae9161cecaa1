// SPDX-License-Identifier: Apache-2.0

package socks5

import (
	"container/list"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
	"github.com/fairlead-dev/fairlead/pkg/gateway/auth"
	"github.com/fairlead-dev/fairlead/pkg/gateway/internal/gone"
)

// Defaults of Config.
const (
	DefaultHandshakeTimeout  = 8 * time.Second
	DefaultDialTimeout       = 30 * time.Second
	DefaultFailureDelay      = gateway.FailureDelay
	DefaultMaxConns          = 4096
	DefaultMaxConnsPerClient = 1024
)

// maxRefusing is the number of connections above the limits that are served just far enough
// to answer "busy". Further ones are closed at once.
const maxRefusing = 64

// Config configures a Server. Resolver, Authorizer, Dialer and Authenticator are required.
type Config struct {
	Resolver      gateway.Resolver
	Authorizer    gateway.Authorizer
	Dialer        gateway.Dialer
	Authenticator *auth.Authenticator
	// TLS is the configuration of the listener; nil serves without TLS.
	TLS *tls.Config
	// HandshakeTimeout bounds the time from accepting a connection to its whole request.
	HandshakeTimeout time.Duration
	// DialTimeout bounds resolving, authorizing and dialing.
	DialTimeout time.Duration
	// FailureDelay is the wait before the answer to wrong credentials.
	FailureDelay time.Duration
	// Failures bounds how fast clients guess the password; nil does not.
	Failures *gateway.Failures
	// MaxConns bounds the connections of the process, MaxConnsPerClient those of one
	// client: a user with a certificate or a token, otherwise an IPv4 address or an IPv6
	// network of 64 bits.
	MaxConns, MaxConnsPerClient int
	// Metrics may be nil.
	Metrics *Metrics
	// Audit gets one record for each connection that has ended; it may be nil.
	Audit func(Record)

	// Tests set these. They are how long one end may acknowledge nothing, and how long a client waits for a place for a lookup.
	goneAfter, lookupWait time.Duration
}

// Server serves both protocols.
type Server struct {
	cfg    Config
	ctx    context.Context // ends when connections must
	cancel context.CancelFunc

	mu        sync.Mutex
	listeners map[net.Listener]bool
	perClient map[netip.Prefix]int // connections that count for an address
	perUser   map[string]int       // the others
	open      int
	refusing  int
	strangers *list.List // of *stranger, the oldest first
	// strangersOf counts them by client, and checking the credentials that are checked now.
	strangersOf, checking map[netip.Prefix]int
	closing               bool
	wg                    sync.WaitGroup
	lookups               lookups
}

// NewServer returns a server. Zero values of times and limits are the defaults.
func NewServer(cfg Config) *Server {
	for _, d := range []struct {
		value    *time.Duration
		fallback time.Duration
	}{
		{&cfg.HandshakeTimeout, DefaultHandshakeTimeout}, {&cfg.DialTimeout, DefaultDialTimeout}, {&cfg.FailureDelay, DefaultFailureDelay},
		{&cfg.goneAfter, gone.Default}, {&cfg.lookupWait, defaultLookupWait},
	} {
		if *d.value == 0 {
			*d.value = d.fallback
		}
	}
	if cfg.MaxConns == 0 {
		cfg.MaxConns = DefaultMaxConns
	}
	if cfg.MaxConnsPerClient == 0 {
		cfg.MaxConnsPerClient = DefaultMaxConnsPerClient
	}
	if cfg.Metrics == nil {
		cfg.Metrics = NewMetrics(nil)
	}
	if cfg.Audit == nil {
		cfg.Audit = func(Record) {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &Server{cfg: cfg, ctx: ctx, cancel: cancel, listeners: map[net.Listener]bool{}, perClient: map[netip.Prefix]int{}, perUser: map[string]int{}, strangers: list.New(),
		strangersOf: map[netip.Prefix]int{}, checking: map[netip.Prefix]int{}, lookups: lookups{wait: cfg.lookupWait, of: map[account]*places{}}}
}

// Serve accepts connections until Shutdown; then it returns net.ErrClosed.
func (s *Server) Serve(l net.Listener) error {
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		_ = l.Close()
		return net.ErrClosed
	}
	s.listeners[l] = true
	s.mu.Unlock()
	pause := time.Duration(0)
	for {
		nc, err := l.Accept()
		switch {
		case err == nil:
			pause = 0
			s.start(nc)
		case s.isClosing() || errors.Is(err, net.ErrClosed):
			return net.ErrClosed
		default: // such as too many open files: the next call may succeed
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			klog.ErrorS(err, "Accept failed, retrying", "listener", l.Addr(), "after", pause)
			select {
			case <-time.After(pause):
			case <-s.ctx.Done():
			}
		}
	}
}

func (s *Server) isClosing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closing
}

// Open returns the number of connections that are served.
func (s *Server) Open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open + s.refusing
}

// start serves a connection if the limits allow it.
func (s *Server) start(nc net.Conn) {
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		_ = nc.Close()
		return
	}
	st, oldest := s.enter(nc) // no stranger if it is busy, where maxRefusing is the limit
	busy := st == nil
	if busy {
		s.cfg.Metrics.rejected.Inc()
		if s.refusing >= maxRefusing {
			s.mu.Unlock()
			_ = nc.Close()
			return
		}
		s.refusing++
	}
	s.wg.Add(1)
	s.mu.Unlock()
	if oldest != nil {
		s.cfg.Metrics.rejected.Inc()
		gone.Abort(oldest.nc)
	}
	s.cfg.Metrics.open.Inc()
	go func() {
		defer s.wg.Done()
		s.serve(nc, st)
		s.known(st)
		s.end(busy, st)
	}()
}

func (s *Server) end(busy bool, st *stranger) {
	s.cfg.Metrics.open.Dec()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case busy:
		s.refusing--
	case !st.closed.Load(): // otherwise it was taken out when it made room
		s.uncount(st)
	}
}

// uncount takes a connection out of the limits. The caller holds s.mu.
func (s *Server) uncount(st *stranger) {
	s.open--
	if st.user != "" {
		decrement(s.perUser, st.user)
		return
	}
	decrement(s.perClient, st.client)
}

// clientOf returns what counts as one client.
func clientOf(nc net.Conn) netip.Prefix { return gateway.ClientOf(nc.RemoteAddr().String()) }

// Shutdown closes the listeners and waits for connections to end. When ctx ends before
// them, it closes them and returns ctx's error.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.closing = true
	for l := range s.listeners {
		_ = l.Close()
	}
	s.mu.Unlock()
	done := make(chan struct{})
	go func() {
		s.wg.Wait()
		close(done)
	}()
	var err error
	select {
	case <-done:
	case <-ctx.Done():
		err = ctx.Err()
	}
	s.cancel()
	<-done
	return err
}
