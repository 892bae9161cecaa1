// SPDX-License-Identifier: Apache-2.0

package apiproxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead-dev/fairlead/pkg/internal/httplimits"
)

// errStopped ends what is still open when the grace period is over.
var errStopped = errors.New("the proxy is stopping")

// settle is how long requests that were cut short have to leave the handler.
const settle = time.Second

// Serve answers the connections of a listener until ctx ends. Then it accepts no more
// requests, waits up to grace for the open ones, and ends the rest, upgrades among them.
func (h *Handler) Serve(ctx context.Context, l net.Listener, grace time.Duration) error {
	base, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(errStopped)
	limits := serverLimits(l.Addr())
	srv := limits.Server(h)
	connContext := srv.ConnContext
	srv.ConnContext = func(ctx context.Context, nc net.Conn) context.Context { return withHalfConn(connContext(ctx, nc), nc) }
	srv.BaseContext = func(net.Listener) context.Context { return base }
	// TLS is the outer layer: net/http looks for it to serve HTTP/2.
	limited := limits.Listener(halfListener{l, h.o.goneAfter})
	if h.o.TLS != nil {
		limited = tls.NewListener(limited, h.o.TLS)
	}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(limited) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serving on %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	graceful, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	// Shutdown does not know upgraded connections: the handler counts them.
	_ = srv.Shutdown(graceful)
	h.untilIdle(graceful)
	stop(errStopped)
	settled, cancelSettled := context.WithTimeout(context.WithoutCancel(ctx), settle)
	defer cancelSettled()
	h.untilIdle(settled)
	return srv.Close()
}

const (
	// maxHeaderBytes is kube-apiserver's own limit: clients send long tokens, and impersonation
	// headers with many groups and extra values.
	maxHeaderBytes = 1 << 20
	// maxRemoteHeaderBytes bounds what other machines make the proxy hold before it knows them:
	// there may be 1,000 connections.
	maxRemoteHeaderBytes = 128 << 10
)

// serverLimits are those of listeners whose answers take as long as they take, with larger
// headers. Only connections of which the number is limited have them.
func serverLimits(address net.Addr) httplimits.Limits {
	l := httplimits.Long
	l.HeaderBytes = maxHeaderBytes
	if tcp, ok := address.(*net.TCPAddr); ok && !tcp.IP.IsLoopback() {
		l.HeaderBytes = maxRemoteHeaderBytes
	}
	return l
}

// untilIdle waits until no request is being answered or ctx ends.
func (h *Handler) untilIdle(ctx context.Context) {
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for h.open.Load() > 0 {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// Listen opens a TCP port; 0 picks one.
func Listen(ctx context.Context, address string, port int) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(address, strconv.Itoa(port)))
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("listening on port %d of %s: another program has it: choose another with --port; 0 picks a free one", port, address)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return nil, fmt.Errorf("listening on %s: this machine does not have the address: choose another with --address", address)
	case errors.Is(err, syscall.EACCES):
		return nil, fmt.Errorf("listening on port %d of %s: ports below 1024 need more rights: choose another with --port", port, address)
	case err != nil:
		return nil, fmt.Errorf("listening on port %d of %s: %w: choose others with --port and --address", port, address, err)
	}
	return l, nil
}

// ListenUnix opens a Unix socket that only its owner can connect to. It replaces a socket
// on which no program listens any more, and refuses to replace anything else.
func ListenUnix(ctx context.Context, path string) (net.Listener, error) {
	if err := clearStale(ctx, path); err != nil {
		return nil, err
	}
	// The mode of the socket is set as it comes into being: between bind and chmod, others
	// could connect.
	old := unix.Umask(0o177)
	defer unix.Umask(old)
	l, err := new(net.ListenConfig).Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("listening on %s: %w: choose another path with --unix-socket", path, err)
	}
	return l, nil
}

func clearStale(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("looking at %s: %w: choose another path with --unix-socket", path, err)
	case info.Mode()&os.ModeSocket == 0:
		return fmt.Errorf("listening on %s: it exists and is not a socket: choose another path with --unix-socket", path)
	}
	c, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err == nil {
		_ = c.Close()
	}
	if err == nil || errors.Is(err, syscall.EAGAIN) {
		return fmt.Errorf("listening on %s: another program listens there: stop it, or choose another path with --unix-socket", path)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("removing the stale socket %s: %w: choose another path with --unix-socket", path, err)
	}
	return nil
}
