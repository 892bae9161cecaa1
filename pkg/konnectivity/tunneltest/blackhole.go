// SPDX-License-Identifier: Apache-2.0

package tunneltest

import (
	"fmt"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// BlackHole returns an address that answers nothing: a listener whose backlog is full.
func BlackHole(t testing.TB) string {
	t.Helper()
	addr, _ := FullBacklog(t)
	return addr
}

// FullBacklog returns the address of a listener whose backlog is full, so that the kernel drops what would open another
// connection. accept makes room, and accepts and closes connections from then on.
func FullBacklog(t testing.TB) (addr string, accept func()) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	sa, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	addr = fmt.Sprintf("127.0.0.1:%d", sa.(*unix.SockaddrInet4).Port)
	accept = func() {
		if err := unix.Listen(fd, 1024); err != nil {
			t.Error(err)
		}
		go func() {
			for {
				c, _, err := unix.Accept(fd)
				if err != nil {
					return
				}
				_ = unix.Close(c)
			}
		}()
	}
	for range 4 { // one is taken, the others wait for nothing
		c, err := net.DialTimeout("tcp", addr, 100*time.Millisecond)
		if err != nil {
			return addr, accept
		}
		t.Cleanup(func() { _ = c.Close() })
	}
	t.Fatal("the backlog takes everything")
	return "", nil
}
