// SPDX-License-Identifier: Apache-2.0

package dial

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
	"github.com/fairlead-dev/fairlead/pkg/gateway"
)

// Most tests of this package wait most of the time. Those that look for goroutines of the whole process are not parallel: Go
// runs them before the parallel ones.
func TestMain(m *testing.M) { os.Exit(daemontest.RunParallel(m, 16)) }

// listen serves connections on a loopback port for as long as the test.
func listen(t testing.TB, serve func(*net.TCPConn)) uint16 {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				serve(c.(*net.TCPConn))
			}()
		}
	}()
	return l.Addr().(*net.TCPAddr).AddrPort().Port()
}

func echo(c *net.TCPConn) {
	_, _ = io.Copy(c, c)
	_ = c.CloseWrite()
}

// answerAtEnd sends back what came only after the client has ended its side.
func answerAtEnd(c *net.TCPConn) {
	all, _ := io.ReadAll(c)
	_, _ = c.Write(all)
}

func silent(c *net.TCPConn) { _, _ = io.Copy(io.Discard, c) }

func pour(c *net.TCPConn) {
	for chunk := make([]byte, 64<<10); ; {
		if _, err := c.Write(chunk); err != nil {
			return
		}
	}
}

// refusing is a port on which nothing listens. A socket has it for as long as the test, so that no parallel test gets it.
func refusing(t *testing.T) uint16 {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	at, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return uint16(at.(*unix.SockaddrInet4).Port)
}

const testTimeout = time.Minute

func newDialer(t testing.TB, via string, o Options) Dialer {
	t.Helper()
	d, err := New(via, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func mustDial(t testing.TB, d gateway.Dialer, to gateway.Destination) gateway.Conn {
	t.Helper()
	c, err := d.Dial(t.Context(), to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(testTimeout))
	return c
}

// ping sends a word over a connection to an echo server.
func ping(t testing.TB, c net.Conn, word string) {
	t.Helper()
	if _, err := io.WriteString(c, word); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(word))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != word {
		t.Fatalf("sent %q, got %q, %v", word, got, err)
	}
}

// wantReason dials in vain.
func wantReason(t testing.TB, d gateway.Dialer, to gateway.Destination, reason gateway.Reason, texts ...string) {
	t.Helper()
	c, err := d.Dial(t.Context(), to)
	if err == nil {
		_ = c.Close()
		t.Fatalf("dial of %s succeeded, want %s", to, reason)
	}
	var e *gateway.Error
	if !errors.As(err, &e) {
		t.Fatalf("error %v has no reason", err)
	}
	if e.Reason != reason {
		t.Errorf("reason %s (%v), want %s", e.Reason, err, reason)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("error %q lacks %q", err, text)
		}
	}
}

// noLeaks waits until no goroutine runs this package's code. The test must not be parallel. Goroutines of tests and of the
// servers in this process do not count.
func noLeaks(t testing.TB) {
	t.Helper()
	testutil.Eventually(t, testTimeout, func() error {
		all := make([]byte, 4<<20)
		all = all[:runtime.Stack(all, true)]
		for _, g := range strings.Split(string(all), "\n\n") {
			if strings.Contains(g, "pkg/gateway/dial.(*") && !strings.Contains(g, "_test.go") {
				return fmt.Errorf("goroutine left:\n%s", g)
			}
		}
		return nil
	})
}
