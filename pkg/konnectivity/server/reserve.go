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

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/sock"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunnel"
)

// reserve is a descriptor that is held to be given up: with the one that comes free
// for it a connection can be taken that has to be refused. Otherwise a client would
// wait in the listener's queue without an answer.
type reserve struct {
	mu    sync.Mutex
	file  *os.File
	given bool
}

// give gives the descriptor up; false when it is given up already.
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

// take takes a descriptor again, at the latest when one is needed.
func (r *reserve) take() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.given = false
	_ = r.fillLocked()
}

// lost takes a descriptor if there is no reserve, and reports whether there is none left
// for it.
func (r *reserve) lost() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return noneLeft(r.fillLocked())
}

// fillLocked needs no path: in a container there may be no /dev.
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

// noneLeft tells whether a call has failed for want of a descriptor.
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

// turnAway refuses a connection that waits for a descriptor, and returns false when
// that is not possible at present.
func (s *Server) turnAway(l net.Listener, err error, on listening) bool {
	if !noneLeft(err) || !s.spare.give() {
		return false
	}
	nc, err := sock.AcceptNow(l)
	if err != nil {
		s.spare.take()
		return false
	}
	s.dismiss(nc, on, s.spare.take)
	return true
}

// tookReserve refuses a connection that was accepted with the descriptor that another
// listener had given up, or with one that came free in its place: were it served, there
// would be no reserve, and nobody could be refused. It returns false when there is one.
func (s *Server) tookReserve(nc net.Conn, on listening) bool {
	if !s.spare.lost() {
		return false
	}
	s.dismiss(nc, on, func() { s.spare.lost() })
	return true
}

// dismiss ends a connection, with the reason if its protocol has a place for it, and
// then takes the reserve again.
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

// refuseTime is for how long a client that is refused may keep the reserve: to make
// its request and to read the answer.
const refuseTime = time.Second

// noDescriptors is what a client is told that is refused.
const noDescriptors = "server has no free file descriptors"

// refuseConnect answers a client of HTTP CONNECT for which there is no descriptor. Its
// request is read first: a connection that is closed with bytes unread is reset, and
// the answer may be lost.
func (s *Server) refuseConnect(nc net.Conn, cfg *tls.Config) {
	if nc = s.secure(nc, cfg); nc == nil {
		return
	}
	c := &connectClient{s: s, in: sock.New(nc)}
	if _, _, err := c.readRequest(); err != nil {
		return
	}
	s.countFailure("no_agent", tunnel.CodeLimit)
	e := tunnel.Errorf(tunnel.CodeLimit, noDescriptors)
	_, _ = nc.Write(httpError(statusOf(e.Code), dialReason(e), e.Message))
	_ = nc.Close() // of TLS
}
