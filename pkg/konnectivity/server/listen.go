// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/netx"
)

// Errors of ListenUnix.
var (
	ErrNotSocket  = errors.New("path exists and is not a socket: remove it or use another")
	ErrSocketUsed = errors.New("socket belongs to a server that is running: stop that one or use another path")
)

var umaskMu sync.Mutex

// ListenUnix listens on a Unix socket that only its user and group may use. With replace,
// it first removes a stale socket, on which no process listens.
func ListenUnix(path string, replace bool) (net.Listener, error) {
	if err := clearPath(path, replace); err != nil {
		return nil, err
	}
	umaskMu.Lock()
	defer umaskMu.Unlock()
	old := syscall.Umask(0o007)
	defer syscall.Umask(old)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listening on %s: %w", path, err)
	}
	l.SetUnlinkOnClose(false)
	info, err := os.Lstat(path)
	if err != nil {
		_ = l.Close()
		return nil, fmt.Errorf("listening on %s: %w", path, err)
	}
	return &unixListener{UnixListener: l, path: path, info: info}, nil
}

// clearPath removes a stale socket. It keeps a path that is not a socket, and a socket on
// which a server answers.
func clearPath(path string, replace bool) error {
	info, err := os.Lstat(path)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("socket %s: %w", path, err)
	}
	if info.Mode()&os.ModeSocket == 0 {
		return fmt.Errorf("%s: %w", path, ErrNotSocket)
	}
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err == nil {
		_ = c.Close()
	}
	if err == nil || errors.Is(err, syscall.EAGAIN) { // EAGAIN: its backlog is full
		return fmt.Errorf("%s: %w", path, ErrSocketUsed)
	}
	if !replace {
		return nil // listening fails and says so
	}
	return os.Remove(path)
}

// unixListener removes its socket file when it closes or stops accepting, unless another
// server has replaced the file.
type unixListener struct {
	*net.UnixListener
	path string
	info os.FileInfo
	once sync.Once
}

func (l *unixListener) Close() error {
	err := l.UnixListener.Close()
	l.remove()
	return err
}

// SetDeadline removes the socket file. Frontends that connect after the last accepted one
// then find no socket, instead of getting a reset.
func (l *unixListener) SetDeadline(t time.Time) error {
	l.remove()
	return l.UnixListener.SetDeadline(t)
}

func (l *unixListener) remove() {
	l.once.Do(func() {
		if info, err := os.Lstat(l.path); err == nil && os.SameFile(info, l.info) {
			_ = os.Remove(l.path)
		}
	})
}

// acceptSayAgain is how long the server waits before it logs a failure to accept again.
const acceptSayAgain = 10 * time.Second

// Names of listeners in metrics.
const (
	listenerGRPC    = "grpc"
	listenerConnect = "http-connect"
	listenerAgents  = "agents"
)

// listening describes the purpose of a listener.
type listening struct {
	name   string // in metrics
	serve  func(net.Conn)
	refuse func(net.Conn) // answers a connection that cannot be served with the reason; may be nil
}

// accept serves connections until the listener closes or, once the server is stopping,
// its deadline has passed. While the process has no free file descriptors, it refuses
// connections.
func (s *Server) accept(l net.Listener, on listening) error {
	s.mu.Lock()
	if s.draining {
		s.mu.Unlock()
		return net.ErrClosed
	}
	s.listeners[l] = struct{}{}
	s.mu.Unlock()
	defer func() {
		_ = l.Close()
		s.mu.Lock()
		delete(s.listeners, l)
		s.mu.Unlock()
	}()
	var lastLogged time.Time
	for {
		nc, err := l.Accept()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			nc, err = acceptQueued(l)
		}
		if errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded) {
			return net.ErrClosed
		}
		if err != nil {
			if now := time.Now(); now.Sub(lastLogged) > acceptSayAgain {
				lastLogged = now
				s.cfg.Logger.Error(err, "Cannot accept connections, retrying", "address", l.Addr().String())
			}
			if !s.turnAway(l, err, on) {
				time.Sleep(20 * time.Millisecond)
			}
			continue
		}
		if s.tookReserve(nc, on) {
			continue
		}
		s.wg.Add(1)
		go func() {
			defer s.wg.Done()
			on.serve(nc)
		}()
	}
}

// acceptQueued accepts a connection that waits in the kernel's accept queue of a listener whose deadline has passed. Accept
// does not look there any more, and on a busy machine the deadline can pass before Accept runs. Closing the listener
// would reset the connection.
func acceptQueued(l net.Listener) (net.Conn, error) {
	d, ok := l.(interface {
		syscall.Conn
		SetDeadline(t time.Time) error
	})
	if !ok || !readable(d) {
		return nil, os.ErrDeadlineExceeded
	}
	_ = d.SetDeadline(time.Now().Add(time.Second)) // Accept returns at once
	nc, err := l.Accept()
	_ = d.SetDeadline(time.Now())
	return nc, err //nolint:wrapcheck // as Accept
}

// readable reports whether a read, or an accept, would not wait.
func readable(c syscall.Conn) (yes bool) {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	err = raw.Control(func(fd uintptr) {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}} //nolint:gosec // a descriptor is small
		n, err := unix.Poll(fds, 0)
		yes = n > 0 && err == nil
	})
	return yes && err == nil
}

// ServeGRPC serves frontends of the gRPC service on a listener. tlsConfig may be
// nil.
func (s *Server) ServeGRPC(l net.Listener, tlsConfig *tls.Config) error {
	return s.accept(l, listening{name: listenerGRPC, serve: func(nc net.Conn) {
		if nc = s.secure(nc, tlsConfig, s.frontendTurns); nc != nil {
			s.serveGRPC(nc)
		}
	}})
}

// ServeHTTPConnect serves frontends of HTTP CONNECT on a listener.
func (s *Server) ServeHTTPConnect(l net.Listener, tlsConfig *tls.Config) error {
	return s.accept(l, listening{name: listenerConnect, serve: func(nc net.Conn) {
		if nc = s.secure(nc, tlsConfig, s.frontendTurns); nc != nil {
			s.serveConnect(nc)
		}
	}, refuse: func(nc net.Conn) { s.refuseConnect(nc, tlsConfig) }})
}

// ServeAgents serves agents on a listener.
func (s *Server) ServeAgents(l net.Listener, tlsConfig *tls.Config) error {
	return s.accept(l, listening{name: listenerAgents, serve: func(nc net.Conn) { s.serveAgent(nc, tlsConfig) }})
}

// secure performs the TLS handshake, in turns if the caller names some. If the handshake
// fails, it closes the connection and returns nil.
func (s *Server) secure(nc net.Conn, cfg *tls.Config, in *turns) net.Conn {
	if cfg == nil {
		return nc
	}
	ctx, cancel := context.WithTimeout(s.ctx, s.cfg.HandshakeTimeout)
	defer cancel()
	below := nc
	if in != nil {
		turn := &turn{of: in, ctx: ctx}
		defer turn.end()
		below = &turnConn{nc, turn}
	}
	tc := tls.Server(below, cfg)
	if err := tc.HandshakeContext(ctx); err != nil {
		s.badFrontend(nc, fmt.Errorf("TLS: %w", err))
		_ = nc.Close()
		return nil
	}
	return tc
}

// plainConn lets Shutdown close a connection whose protocol has no GOAWAY.
type plainConn struct{ nc net.Conn }

func (p *plainConn) goAway() {}
func (p *plainConn) abort()  { netx.Abort(p.nc) }
