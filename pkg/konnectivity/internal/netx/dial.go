// SPDX-License-Identifier: Apache-2.0

package netx

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// DialAddr connects to an address that needs no resolver, until ctx is done. It does
// the same as net.Dialer with less: no additional goroutine, and no wait for the
// netpoller if the connection is established at once, as to an address of the same
// node. Errors are those of net.Dialer.
func DialAddr(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	fail := func(call string, err error) error {
		if call != "" {
			err = os.NewSyscallError(call, err)
		}
		return &net.OpError{Op: "dial", Net: "tcp", Addr: net.TCPAddrFromAddrPort(to), Err: err}
	}
	var sa unix.Sockaddr
	domain := unix.AF_INET
	if a := to.Addr().Unmap(); a.Is4() {
		sa = &unix.SockaddrInet4{Port: int(to.Port()), Addr: a.As4()}
	} else {
		domain, sa = unix.AF_INET6, &unix.SockaddrInet6{Port: int(to.Port()), Addr: a.As16()}
	}
	fd, err := unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fail("socket", err)
	}
	done, err := connected(fd, sa)
	if err != nil {
		_ = unix.Close(fd)
		return nil, fail("connect", err)
	}
	c := &fileConn{File: os.NewFile(uintptr(fd), "connection"), to: to}
	if err := c.stand(ctx, done, sa); err != nil {
		_ = c.Close()
		return nil, fail("", err)
	}
	for _, o := range [...][3]int{
		{unix.IPPROTO_TCP, unix.TCP_NODELAY, 1}, {unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
		{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, keepAlive}, {unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, keepAlive},
	} {
		_ = unix.SetsockoptInt(fd, o[0], o[1], o[2])
	}
	return c, nil
}

// keepAlive is the TCP keepalive time of connections to destinations in seconds, as
// with net.Dialer.
const keepAlive = 15

// connected starts to connect, or checks whether the connection is established.
func connected(fd int, sa unix.Sockaddr) (bool, error) {
	for tries := 0; ; {
		switch err := unix.Connect(fd, sa); {
		case err == nil, errors.Is(err, unix.EISCONN):
			return true, nil
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EINPROGRESS) && tries == 0:
			tries++ // try again: on the same node the answer may have arrived meanwhile
		case errors.Is(err, unix.EINPROGRESS), errors.Is(err, unix.EALREADY):
			return false, nil
		default:
			return false, err
		}
	}
}

// selfConnected reports whether a TCP socket to that port is connected to itself. That
// can happen on this host with ports that the kernel also assigns to clients.
func selfConnected(fd, port int) bool {
	own, err := unix.Getsockname(fd)
	if err != nil {
		return false
	}
	switch a := own.(type) {
	case *unix.SockaddrInet4:
		if a.Port != port {
			return false
		}
		peer, err := unix.Getpeername(fd)
		b, ok := peer.(*unix.SockaddrInet4)
		return err == nil && ok && a.Port == b.Port && a.Addr == b.Addr
	case *unix.SockaddrInet6:
		if a.Port != port {
			return false
		}
		peer, err := unix.Getpeername(fd)
		b, ok := peer.(*unix.SockaddrInet6)
		return err == nil && ok && a.Port == b.Port && a.Addr == b.Addr
	}
	return false
}

// stand waits until the connection is established, unless done says that it is. It
// fails if the socket is connected to itself.
func (c *fileConn) stand(ctx context.Context, done bool, sa unix.Sockaddr) error {
	if !done {
		if err := c.await(ctx, sa); err != nil {
			return err
		}
	}
	self := false
	if err := c.control(func(fd int) { self = selfConnected(fd, int(c.to.Port())) }); err != nil {
		return err
	}
	if self { // no process listens: the kernel gave this socket the very port that it connects to
		return os.NewSyscallError("connect", unix.ECONNREFUSED)
	}
	return nil
}

// await waits until the connection is established or ctx is done.
func (c *fileConn) await(ctx context.Context, sa unix.Sockaddr) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	if d, ok := ctx.Deadline(); ok {
		_ = c.SetWriteDeadline(d)
	}
	stop := context.AfterFunc(ctx, func() { _ = c.SetWriteDeadline(time.Unix(1, 0)) })
	var failed error
	err = raw.Write(func(fd uintptr) bool {
		var done bool
		done, failed = connected(int(fd), sa)
		return done || failed != nil
	})
	if !stop() && err == nil && failed == nil {
		err = ctx.Err()
	}
	_ = c.SetWriteDeadline(time.Time{})
	switch {
	case failed != nil:
		return os.NewSyscallError("connect", failed)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return os.ErrDeadlineExceeded
	}
	return err
}

// AcceptNow accepts a connection that waits on a listener. It needs only one file
// descriptor. The addresses of the connection are not known.
func AcceptNow(l net.Listener) (net.Conn, error) {
	sc, ok := l.(syscall.Conn)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd := -1
	if e := raw.Control(func(listener uintptr) { fd, _, err = unix.Accept4(int(listener), unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC) }); e != nil {
		return nil, e
	}
	if err != nil {
		return nil, os.NewSyscallError("accept4", err)
	}
	return &fileConn{File: os.NewFile(uintptr(fd), "connection")}, nil
}

// fileConn is a connection that package net does not manage.
type fileConn struct {
	*os.File
	to netip.AddrPort
}

// LocalAddr implements net.Conn.
func (c *fileConn) LocalAddr() net.Addr { return &net.TCPAddr{} }

// RemoteAddr implements net.Conn.
func (c *fileConn) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(c.to) }

// CloseWrite closes the direction to the peer.
func (c *fileConn) CloseWrite() (err error) {
	if e := c.control(func(fd int) { err = unix.Shutdown(fd, unix.SHUT_WR) }); e != nil {
		return e
	}
	return os.NewSyscallError("shutdown", err)
}

// SetLinger is like net.TCPConn.SetLinger.
func (c *fileConn) SetLinger(sec int) (err error) {
	if e := c.control(func(fd int) {
		err = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: int32(sec)})
	}); e != nil {
		return e
	}
	return os.NewSyscallError("setsockopt", err)
}

func (c *fileConn) control(f func(fd int)) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Control(func(fd uintptr) { f(int(fd)) })
}

var _ syscall.Conn = (*fileConn)(nil)
