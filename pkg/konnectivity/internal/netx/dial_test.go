// SPDX-License-Identifier: Apache-2.0

package netx

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestSelfConnected checks that selfConnected distinguishes a socket that is
// connected to itself from one that is connected to a listener.
func TestSelfConnected(t *testing.T) {
	for name, domain := range map[string]int{"IPv4": unix.AF_INET, "IPv6": unix.AF_INET6} {
		t.Run(name, func(t *testing.T) {
			var loopback unix.Sockaddr = &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}
			if domain == unix.AF_INET6 {
				loopback = &unix.SockaddrInet6{Addr: [16]byte{15: 1}}
			}
			open := func() int {
				fd, err := unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
				if err == nil {
					t.Cleanup(func() { _ = unix.Close(fd) })
					err = unix.Bind(fd, loopback)
				}
				if err != nil {
					t.Skip(err) // a host without IPv6
				}
				return fd
			}
			address := func(fd int) (unix.Sockaddr, int) {
				sa, err := unix.Getsockname(fd)
				if err != nil {
					t.Fatal(err)
				}
				if a, ok := sa.(*unix.SockaddrInet6); ok {
					return sa, a.Port
				}
				return sa, sa.(*unix.SockaddrInet4).Port
			}
			self := open()
			to, port := address(self)
			if err := unix.Connect(self, to); err != nil {
				t.Fatal(err)
			}
			if !selfConnected(self, port) {
				t.Error("a socket that is connected to itself is not seen")
			}
			listener, client := open(), open()
			if err := unix.Listen(listener, 1); err != nil {
				t.Fatal(err)
			}
			to, port = address(listener)
			if err := unix.Connect(client, to); err != nil {
				t.Fatal(err)
			}
			if selfConnected(client, port) {
				t.Error("a socket with a listener at the other end is taken for one connected to itself")
			}
		})
	}
}
