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

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/sock"
)

// Errors of ListenUnix.
var (
	ErrNotSocket  = errors.New("path exists and is not a socket: remove it or use another")
	ErrSocketUsed = errors.New("socket belongs to a server that is running: stop that one or use another path")
)

var umaskMu sync.Mutex

// ListenUnix listens on a socket that only user and group may use. With replace,
// a socket that nobody listens on is removed first.
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

// clearPath removes a stale socket. A path that is something else, or a socket
// on which a server answers, stays.
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

// unixListener removes its socket when it closes or is about to, but not one that another
// server has put in its place.
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

// SetDeadline removes the socket, so that who comes behind the last one that is accepted
// finds none, instead of being reset.
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

// acceptSayAgain is for how long a failure to accept is not logged again.
const acceptSayAgain = 10 * time.Second

// listening is what a listener is for.
type listening struct {
	name   string // in metrics
	serve  func(net.Conn)
	refuse func(net.Conn) // says why a connection ends that cannot be served; may be nil
}

// accept serves connections until the listener closes or, when the server is asked
// to stop, its deadline has passed. While there are no descriptors, it refuses them.
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
	var said time.Time
	for {
		nc, err := l.Accept()
		if errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded) {
			return net.ErrClosed
		}
		if err != nil {
			if now := time.Now(); now.Sub(said) > acceptSayAgain {
				said = now
				s.cfg.Logf(0, "accepting on %s, trying on: %v", l.Addr(), err)
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

// ServeGRPC serves clients of the gRPC service on a listener. tlsConfig may be
// nil.
func (s *Server) ServeGRPC(l net.Listener, tlsConfig *tls.Config) error {
	return s.accept(l, listening{name: "grpc", serve: func(nc net.Conn) {
		if nc = s.secure(nc, tlsConfig); nc != nil {
			s.serveGRPC(nc)
		}
	}})
}

// ServeHTTPConnect serves clients of HTTP CONNECT on a listener.
func (s *Server) ServeHTTPConnect(l net.Listener, tlsConfig *tls.Config) error {
	return s.accept(l, listening{name: "http-connect", serve: func(nc net.Conn) {
		if nc = s.secure(nc, tlsConfig); nc != nil {
			s.serveConnect(nc)
		}
	}, refuse: func(nc net.Conn) { s.refuseConnect(nc, tlsConfig) }})
}

// ServeAgents serves agents on a listener.
func (s *Server) ServeAgents(l net.Listener, tlsConfig *tls.Config) error {
	return s.accept(l, listening{name: "agents", serve: func(nc net.Conn) { s.serveAgent(nc, tlsConfig) }})
}

// secure makes the TLS handshake, or returns nil after closing the connection.
func (s *Server) secure(nc net.Conn, cfg *tls.Config) net.Conn {
	if cfg == nil {
		return nc
	}
	ctx, cancel := context.WithTimeout(s.ctx, s.cfg.HandshakeTimeout)
	defer cancel()
	tc := tls.Server(nc, cfg)
	if err := tc.HandshakeContext(ctx); err != nil {
		s.badClient(nc, "TLS: %v", err)
		_ = nc.Close()
		return nil
	}
	return tc
}

// plainConn lets Shutdown end a connection that has no protocol for going away.
type plainConn struct{ nc net.Conn }

func (p *plainConn) goAway() {}
func (p *plainConn) abort()  { sock.Abort(p.nc) }
