// SPDX-License-Identifier: Apache-2.0

package socks5

import (
	"net"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestKeepalive: the kernel probes each client of the proxy, and gives it up after the time that
// docs/socks5.md promises.
func TestKeepalive(t *testing.T) {
	page, err := os.ReadFile("../../../docs/socks5.md")
	if err != nil {
		t.Fatal(err)
	}
	promise := strings.Join(strings.Fields(string(page)), " ")
	if !regexp.MustCompile(`TCP keepalive finds clients that are gone after one minute`).MatchString(promise) {
		t.Fatal("the page has no time for clients that are gone")
	}
	o, _ := newOptions(t)
	l, err := o.listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.Close()
	raw, err := accepted.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	option := func(level, name int) (value int) {
		t.Helper()
		var optErr error
		if err := raw.Control(func(fd uintptr) { value, optErr = unix.GetsockoptInt(int(fd), level, name) }); err != nil || optErr != nil {
			t.Fatal(err, optErr)
		}
		return value
	}
	if option(unix.SOL_SOCKET, unix.SO_KEEPALIVE) == 0 {
		t.Error("keepalive is off")
	}
	idle, interval, count := option(unix.IPPROTO_TCP, unix.TCP_KEEPIDLE), option(unix.IPPROTO_TCP, unix.TCP_KEEPINTVL), option(unix.IPPROTO_TCP, unix.TCP_KEEPCNT)
	if after := time.Duration(idle+interval*count) * time.Second; after != time.Minute {
		t.Errorf("a client that is gone is given up after %v: %d s idle, %d probes every %d s", after, idle, count, interval)
	}
}
