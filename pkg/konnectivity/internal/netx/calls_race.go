// SPDX-License-Identifier: Apache-2.0

//go:build race || netx_syscall

package netx

import "golang.org/x/sys/unix"

// With the build tag netx_syscall, a benchmark shows what the other file gains.
//
// The race detector has to see which memory a call reads and writes, and that what
// one goroutine wrote to a socket happened before another has read it.

func tryReadv(fd int, bufs [][]byte) (int, error) {
	if len(bufs) == 1 {
		return unix.Read(fd, bufs[0])
	}
	return unix.Readv(fd, bufs)
}

func tryWritev(fd int, bufs [][]byte) (int, error) {
	if len(bufs) == 1 {
		return unix.Write(fd, bufs[0])
	}
	return unix.Writev(fd, bufs)
}
