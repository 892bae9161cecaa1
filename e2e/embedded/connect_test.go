// SPDX-License-Identifier: Apache-2.0

package embedded_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
	"github.com/fairlead-dev/fairlead/pkg/gateway/dial"
)

// destination is a TCP echo of this test at the machine's address, which no object of the cluster has. It tells when a
// connection to it has ended.
func destination(t *testing.T, host string) (gateway.Destination, <-chan struct{}) {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	ended := make(chan struct{}, 100)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
				ended <- struct{}{}
			}()
		}
	}()
	addr := netip.MustParseAddrPort(l.Addr().String())
	return gateway.Destination{Host: addr.Addr().String(), Port: addr.Port(), Kind: gateway.KindExternal, Addr: addr}, ended
}

// exchange sends a word and wants it back.
func exchange(c net.Conn, word string) error {
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	defer func() { _ = c.SetDeadline(time.Time{}) }()
	if _, err := io.WriteString(c, word); err != nil {
		return err
	}
	got := make([]byte, len(word))
	if _, err := io.ReadFull(c, got); err != nil {
		return err
	}
	if string(got) != word {
		return fmt.Errorf("%q came back as %q", word, got)
	}
	return nil
}

// TestConnectStreams: a connection through the tunnel's API outlives the time that kube-apiserver gives to requests. When the
// API server is asked to stop, open connections go on for a while. When it or the agent is killed, the client sees a
// reset, the destination sees the end, and new connections work as soon as the program is there again.
func TestConnectStreams(t *testing.T) {
	t.Parallel()
	w := newAPIWorldOf(t, "tunnelAPI: {enabled: true, connect: true}")
	defer w.must("down", "-q")
	host, _, err := net.SplitHostPort(w.address)
	if err != nil {
		t.Fatal(err)
	}
	to, ended := destination(t, host)
	d, err := dial.New(dial.ViaAPI, dial.Options{Config: w.config})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	open := func() net.Conn {
		t.Helper()
		var c net.Conn
		var last error
		w.eventually("a connection works", func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			if c, last = d.Dial(ctx, to); last != nil {
				t.Logf("not yet: %v", last)
				return false
			}
			return exchange(c, "hello") == nil
		})
		return c
	}
	t.Run("longer than requests", func(t *testing.T) {
		c := open()
		defer c.Close()
		const requestTimeout = time.Minute // kube-apiserver's --request-timeout
		for end := time.Now().Add(requestTimeout + 15*time.Second); time.Now().Before(end); time.Sleep(5 * time.Second) {
			if err := exchange(c, "still here"); err != nil {
				t.Fatal(err)
			}
		}
	})
	drainEnded(ended)
	for _, program := range []string{"fairlead-apiserver", "agent"} {
		t.Run("kill "+program, func(t *testing.T) {
			c := open()
			defer c.Close()
			kill(t, w, program, syscall.SIGKILL)
			_ = c.SetReadDeadline(time.Now().Add(time.Minute))
			n, err := c.Read(make([]byte, 1))
			// Between the servers there is a Unix socket here, which knows no reset: the loss of an agent looks like an end.
			if program == "agent" && errors.Is(err, io.EOF) {
				err = errReset
			}
			if err == nil || !strings.Contains(err.Error(), errReset.Error()) {
				t.Errorf("the client sees %d bytes, %v", n, err)
			}
			select {
			case <-ended:
			case <-time.After(time.Minute):
				t.Error("the destination sees no end")
			}
			_ = open().Close()
			drainEnded(ended)
		})
	}
	t.Run("stop the API server", func(t *testing.T) {
		c := open()
		defer c.Close()
		kill(t, w, "fairlead-apiserver", syscall.SIGTERM)
		time.Sleep(2 * time.Second) // well within the time that the server gives to open connections
		if err := exchange(c, "a few more words"); err != nil {
			t.Errorf("2 s after the signal: %v", err)
		}
		_ = c.SetReadDeadline(time.Now().Add(time.Minute))
		if n, err := c.Read(make([]byte, 1)); err == nil || !strings.Contains(err.Error(), errReset.Error()+": the server stops") {
			t.Errorf("in the end the client sees %d bytes, %v", n, err)
		}
	})
}

// errReset is what a client sees of a connection that was reset.
var errReset = errors.New("the connection was reset")

func drainEnded(ended <-chan struct{}) {
	for {
		select {
		case <-ended:
		case <-time.After(time.Second):
			return
		}
	}
}

// kill sends a signal to a process of the cluster whose name contains a text.
func kill(t *testing.T, w *apiWorld, name string, signal syscall.Signal) {
	t.Helper()
	for _, p := range w.status("dev").Processes {
		if strings.Contains(p.Name, name) {
			if err := syscall.Kill(p.PID, signal); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatalf("no process %s", name)
}
