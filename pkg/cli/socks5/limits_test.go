// SPDX-License-Identifier: Apache-2.0

package socks5

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
)

// connect asks the proxy for a connection, and returns the status of its answer.
func connect(t *testing.T, nc net.Conn, login string) int {
	t.Helper()
	fmt.Fprintf(nc, "CONNECT hello.default:80 HTTP/1.1\r\nHost: hello.default:80\r\nProxy-Authorization: Basic %s\r\n\r\n", base64.StdEncoding.EncodeToString([]byte(login)))
	res, err := http.ReadResponse(bufio.NewReader(nc), &http.Request{Method: http.MethodConnect})
	if err != nil {
		t.Error(err)
		return 0
	}
	_ = res.Body.Close()
	return res.StatusCode
}

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
		status := connect(t, nc, u.User.String())
		if want := map[bool]int{true: http.StatusOK, false: http.StatusServiceUnavailable}[n < most]; status != want {
			t.Errorf("connection %d: status %d, want %d", n+1, status, want)
		}
	}
}

// TestGuesses: guesses of a password of --password-file are bounded, in addition to the delay of each. The random password
// cannot be guessed: wrong ones keep no client of the same address out.
func TestGuesses(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Options){
		"random": func(*Options) {},
		"file": func(o *Options) {
			o.PasswordFile = filepath.Join(t.TempDir(), "password")
			if err := os.WriteFile(o.PasswordFile, []byte("alice:summer\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			o, out := newOptions(t)
			change(o)
			u, _ := start(t, o, out)
			var busy, wrong atomic.Int32
			var wg sync.WaitGroup
			for range 4 * gateway.MaxFailures {
				wg.Go(func() {
					nc, err := net.Dial("tcp", u.Host)
					if err != nil {
						t.Error(err)
						return
					}
					defer nc.Close()
					switch status := connect(t, nc, "alice:winter"); status {
					case http.StatusServiceUnavailable:
						busy.Add(1)
					case http.StatusProxyAuthRequired:
						wrong.Add(1)
					default:
						t.Errorf("status %d", status)
					}
				})
			}
			wg.Wait()
			if limited := busy.Load() > 0; limited != (name == "file") || wrong.Load() < gateway.MaxFailures {
				t.Errorf("%d guesses at a time: %d were compared, %d were not", 4*gateway.MaxFailures, wrong.Load(), busy.Load())
			}
		})
	}
}
