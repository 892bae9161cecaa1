// SPDX-License-Identifier: Apache-2.0

//go:build !race && !netx_syscall

package netx

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// The calls here do not tell Go's scheduler that a system call begins, as package syscall
// does. It is for calls that may wait, which those on descriptors that do not block cannot:
// else it now and then takes the processor away from the goroutine that only copies its
// bytes, starts a thread for it, and has both wait for each other.

func tryReadv(fd int, bufs [][]byte) (int, error) {
	if len(bufs) == 1 {
		return single(unix.SYS_READ, fd, bufs[0])
	}
	return several(unix.SYS_READV, fd, bufs)
}

func tryWritev(fd int, bufs [][]byte) (int, error) {
	if len(bufs) == 1 {
		return single(unix.SYS_WRITE, fd, bufs[0])
	}
	return several(unix.SYS_WRITEV, fd, bufs)
}

func single(call uintptr, fd int, p []byte) (int, error) {
	n, _, errno := unix.RawSyscall(call, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)))
	return result(n, errno)
}

func several(call uintptr, fd int, bufs [][]byte) (int, error) {
	var few [2 * maxBurst]unix.Iovec
	iov := few[:0]
	for _, b := range bufs {
		v := unix.Iovec{Base: unsafe.SliceData(b)}
		v.SetLen(len(b))
		iov = append(iov, v)
	}
	n, _, errno := unix.RawSyscall(call, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(iov))), uintptr(len(iov)))
	return result(n, errno)
}

func result(n uintptr, errno unix.Errno) (int, error) {
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
