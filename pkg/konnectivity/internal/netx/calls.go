// SPDX-License-Identifier: Apache-2.0

package netx

import (
	"errors"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// readv reads into the slices with one system call. The descriptor must not block.
func readv(fd int, bufs [][]byte) (int, error) {
	for {
		n, err := tryReadv(fd, bufs)
		if !errors.Is(err, unix.EINTR) {
			return max(n, 0), err
		}
	}
}

// writev writes what the descriptor, which must not block, takes of the slices with one
// system call.
func writev(fd int, bufs [][]byte) (int, error) {
	for {
		n, err := tryWritev(fd, bufs)
		if !errors.Is(err, unix.EINTR) {
			return max(n, 0), err
		}
	}
}

// Writer writes all of what it is given, and waits where a connection does not take it at
// once. One goroutine at a time may write.
type Writer struct {
	nc   net.Conn
	raw  syscall.RawConn // nil where the connection is not a plain socket
	rest []byte
	err  error
	try  func(fd uintptr) bool // made once
}

// NewWriter returns a Writer to nc, which stays the caller's.
func NewWriter(nc net.Conn) *Writer {
	w := &Writer{nc: nc, raw: rawOf(nc)}
	w.try = w.tryWrite
	return w
}

// Write implements io.Writer. It keeps the connection's deadline.
func (w *Writer) Write(p []byte) (int, error) {
	if w.raw == nil {
		return w.nc.Write(p)
	}
	w.rest, w.err = p, nil
	err := w.raw.Write(w.try)
	n := len(p) - len(w.rest)
	w.rest = nil
	if w.err != nil {
		to := w.nc.RemoteAddr()
		err = &net.OpError{Op: "write", Net: to.Network(), Source: w.nc.LocalAddr(), Addr: to, Err: os.NewSyscallError("write", w.err)}
	}
	return n, err
}

// tryWrite is the callback of RawConn.Write: false means wait until writable.
func (w *Writer) tryWrite(fd uintptr) bool {
	for len(w.rest) > 0 && w.err == nil {
		n, err := writev(int(fd), [][]byte{w.rest})
		if errors.Is(err, unix.EAGAIN) {
			return false
		}
		w.rest, w.err = w.rest[n:], err
	}
	return true
}
