// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package gonetest makes ends of connections vanish, for tests: Vanish.
package gonetest

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// Vanish has a socket drop all that comes, as that of a machine without a network does: its peer gets no answer any more.
func Vanish(t *testing.T, nc *net.TCPConn) {
	t.Helper()
	raw, err := nc.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	drop := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K}
	var failed error
	if err := raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &drop})
	}); err != nil || failed != nil {
		t.Fatal(err, failed)
	}
	_ = nc.SetLinger(0)
}
