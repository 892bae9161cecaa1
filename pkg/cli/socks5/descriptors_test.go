// SPDX-License-Identifier: Apache-2.0

package socks5

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// TestFewDescriptors: a process that may have few descriptors serves fewer connections than --max-connections, and
// says so at the start. Further clients learn that it is busy.
func TestFewDescriptors(t *testing.T) {
	const descriptors, most = 160, 20
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Skipf("no limit of descriptors here: %v", err)
	}
	few := limit
	few.Cur = descriptors
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &few); err != nil {
		t.Skipf("cannot set the limit of descriptors: %v", err)
	}
	restore := sync.OnceValue(func() error { return syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit) })
	t.Cleanup(func() { _ = restore() })
	o, out := newOptions(t)
	u, _ := start(t, o, out)
	if err := restore(); err != nil { // the clients and the destination of this test are in the same process
		t.Fatal(err)
	}
	if want := fmt.Sprintf("Warning: serving up to %d connections at a time, not %d: ", most, o.MaxConns); !strings.Contains(out.String(), want) {
		t.Errorf("%s\nwant %q", out, want)
	}
	var open []net.Conn
	defer func() {
		for _, nc := range open {
			_ = nc.Close()
		}
	}()
	for n := range most + 1 {
		nc, err := net.Dial("tcp", u.Host)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, nc)
		fmt.Fprintf(nc, "CONNECT hello.default:80 HTTP/1.1\r\nHost: hello.default:80\r\nProxy-Authorization: Basic %s\r\n\r\n",
			base64.StdEncoding.EncodeToString([]byte(u.User.String())))
		res, err := http.ReadResponse(bufio.NewReader(nc), &http.Request{Method: http.MethodConnect})
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if want := map[bool]int{true: http.StatusOK, false: http.StatusServiceUnavailable}[n < most]; res.StatusCode != want {
			t.Errorf("connection %d: status %d, want %d", n+1, res.StatusCode, want)
		}
	}
}
