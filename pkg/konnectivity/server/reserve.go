// SPDX-License-Identifier: Apache-2.0

package server

import (
	"crypto/tls"
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead-dev/fairlead/pkg/internal/httpconnect"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/netx"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tunnel"
)

// reserve is a file descriptor that the server holds in order to release it. With the
// descriptor that this frees, the server accepts a connection only to refuse it.
// Otherwise a frontend would wait in the listener's queue without an answer.
type reserve struct {
	mu    sync.Mutex
	file  *os.File
	given bool
}

// give releases the descriptor. It returns false when the descriptor is already
// released.
func (r *reserve) give() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.given || r.fillLocked() != nil {
		return false
	}
	_ = r.file.Close()
	r.file, r.given = nil, true
	return true
}

// take acquires the reserve descriptor again. If that fails now, give tries again
// before it releases one.
func (r *reserve) take() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.given = false
	_ = r.fillLocked()
}

// lost refills the reserve if it is empty, and reports whether that failed because no
// descriptor is free.
func (r *reserve) lost() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return noneLeft(r.fillLocked())
}

// fillLocked opens an eventfd, which needs no path: a container may have no /dev.
func (r *reserve) fillLocked() error {
	if r.file != nil {
		return nil
	}
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err == nil {
		r.file = os.NewFile(uintptr(fd), "reserve")
	}
	return err
}

// noneLeft reports whether a call failed because no file descriptor was free.
func noneLeft(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// close ends the reserve.
func (r *reserve) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = r.file.Close()
	r.given = true
}

// turnAway accepts a connection with the reserve descriptor and refuses it. It returns
// false when that is not possible at present.
func (s *Server) turnAway(l net.Listener, err error, on listening) bool {
	if !noneLeft(err) || !s.spare.give() {
		return false
	}
	nc, err := netx.AcceptNow(l)
	if err != nil {
		s.spare.take()
		return false
	}
	s.dismiss(nc, on, s.spare.take)
	return true
}

// tookReserve refuses a connection that took the descriptor of the reserve: another
// listener had released it, or it was freed in its place. If the server served that
// connection, it would have no reserve left to refuse others with. It returns false
// when the reserve is intact.
func (s *Server) tookReserve(nc net.Conn, on listening) bool {
	if !s.spare.lost() {
		return false
	}
	s.dismiss(nc, on, func() { s.spare.lost() })
	return true
}

// dismiss closes a connection and then refills the reserve. It sends the reason first
// if the protocol has a place for it.
func (s *Server) dismiss(nc net.Conn, on listening, restore func()) {
	s.m.turnedAway.With(on.name).Inc()
	s.wg.Add(1)
	go func() {
		defer s.wg.Done()
		if on.refuse != nil {
			_ = nc.SetDeadline(time.Now().Add(refuseTime))
			on.refuse(nc)
		}
		_ = nc.Close()
		restore()
	}()
}

// refuseTime is how long a refused frontend may hold the reserve, to send its request and
// read the answer.
const refuseTime = time.Second

// noDescriptors is the error message for frontends that are refused for want of a file
// descriptor.
const noDescriptors = "server has no free file descriptors"

// refuseConnect answers an HTTP CONNECT frontend for which there is no file descriptor.
// It reads the request first: the kernel resets a connection that is closed with unread
// bytes, and the answer may be lost.
func (s *Server) refuseConnect(nc net.Conn, cfg *tls.Config) {
	if nc = s.secure(nc, cfg, nil); nc == nil {
		return
	}
	c := &connectFrontend{s: s, in: netx.New(nc)}
	if _, _, err := c.readRequest(); err != nil {
		return
	}
	s.countFailure("no_agent", tunnel.CodeLimit)
	e := tunnel.Errorf(tunnel.CodeLimit, noDescriptors)
	_, _ = nc.Write(httpconnect.Refusal(statusOf(e.Code), dialReason(e), e.Message))
	_ = nc.Close() // with TLS, sends the close alert
}
