// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunneltest"
)

// dialers returns dialers through upstream's pair and through ours.
func dialers(t *testing.T, mode string) (upstream, own tunneltest.Dialer) {
	t.Helper()
	up := startPair(t, options{mode: mode, server: v0_36_0, agent: v0_36_0})
	return up.dialer(), startPair(t, options{mode: mode}).dialer()
}

// reproduce fails the test if upstream does not show a bug in some tries: what is
// tested then is no longer what ours is better at.
func reproduce(t *testing.T, shows func() bool) {
	t.Helper()
	for range 5 {
		if shows() {
			return
		}
	}
	t.Error("upstream " + v0_36_0.String() + " does not show the bug")
}

// lost writes and closes n times and returns the part of the bytes that did not
// arrive within the time.
func lost(t *testing.T, d tunneltest.Dialer, n, size int, limit time.Duration) float64 {
	t.Helper()
	got := make(chan int64, n)
	addr := tunneltest.Target(t, func(c net.Conn) {
		time.Sleep(20 * time.Millisecond)
		b, _ := io.Copy(io.Discard, c)
		got <- b
	})
	for range n {
		c, err := d(context.Background(), addr)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.Write(make([]byte, size))
		c.Close()
	}
	var sum int64
	over := time.After(limit)
	for range n {
		select {
		case b := <-got:
			sum += b
		case <-over:
			return 1 - float64(sum)/float64(n*size)
		}
	}
	return 1 - float64(sum)/float64(n*size)
}

// TestWriteThenClose reproduces upstream's loss of what is written before a close
// and shows that our pair has none.
func TestWriteThenClose(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			upstream, own := dialers(t, mode)
			reproduce(t, func() bool {
				l := lost(t, upstream, 20, 1<<20, 5*time.Second)
				t.Logf("upstream lost %.0f %%", 100*l)
				return l > 0
			})
			if l := lost(t, own, 20, 1<<20, tunneltest.Patience); l != 0 {
				t.Errorf("ours lost %.2f %%", 100*l)
			}
		})
	}
}

// stalls reports whether a dial has not succeeded in time while a client does not
// read.
func stalls(t *testing.T, d tunneltest.Dialer, limit time.Duration) bool {
	t.Helper()
	source := tunneltest.Target(t, func(c net.Conn) {
		// Upstream's server lets what comes at once overtake the answer to the dial.
		_, _ = io.ReadFull(c, make([]byte, 1))
		for b := make([]byte, 64<<10); ; {
			if _, err := c.Write(b); err != nil {
				return
			}
		}
	})
	echo := tunneltest.Target(t, tunneltest.Echo)
	c, err := d(context.Background(), source)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second)
	done := make(chan bool, 1)
	go func() {
		e, err := d(context.Background(), echo)
		if err == nil {
			_, _ = e.Write([]byte{1})
			_, err = io.ReadFull(e, make([]byte, 1))
			e.Close()
		}
		done <- err == nil
	}()
	select {
	case ok := <-done:
		return !ok
	case <-time.After(limit):
		return true
	}
}

// TestOneSlowClient reproduces upstream's #180, one client that stops reading stops
// all, and shows that ours is free of it.
func TestOneSlowClient(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			upstream, own := dialers(t, mode)
			reproduce(t, func() bool { return stalls(t, upstream, 3*time.Second) })
			if limit := tunneltest.TimeBesideStalls(t, own, tunneltest.Target(t, tunneltest.Echo)); stalls(t, own, limit) {
				t.Errorf("ours stalls for more than %v", limit)
			}
		})
	}
}

// descriptors is how many a process has open.
func descriptors(t *testing.T, p *daemontest.Process) int {
	t.Helper()
	names, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.PID()))
	if err != nil {
		t.Fatal(err)
	}
	return len(names)
}

// TestPendingDials reproduces upstream's #855 and #276: a dial that the agent does not
// answer is kept for ever, with its client's connection, although the client has
// gone. Ours keeps nothing. With GRPC this release of upstream forgets a dial whose
// client goes away in an orderly way, so nothing is wanted of it there.
func TestPendingDials(t *testing.T) {
	for _, mode := range []string{"grpc", "http-connect"} {
		for _, from := range []release{v0_36_0, ours} {
			t.Run(mode+"/"+from.String(), func(t *testing.T) { pendingDials(t, mode, from) })
		}
	}
}

func pendingDials(t *testing.T, mode string, from release) {
	p := startPair(t, options{mode: mode, server: from, agent: from})
	p.dial(t)
	before := descriptors(t, p.server)
	p.agent.Freeze(t)
	for range 30 {
		p.giveUpDial(t)
	}
	pending := func() float64 {
		v, err := metric(p.serverHealth, "konnectivity_network_proxy_server_pending_backend_dials")
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	if from != ours {
		time.Sleep(3 * time.Second)
		t.Logf("%v dials pending, %d descriptors more than before", pending(), descriptors(t, p.server)-before)
		if mode != "grpc" && (pending() == 0 || descriptors(t, p.server) <= before) {
			t.Error("upstream " + from.String() + " does not show the bug")
		}
		return
	}
	// The server gives up a dial after 35 s at the latest: less, so that the client's end is the cause.
	daemontest.Eventually(t, 20*time.Second, func() error {
		if d, fds := pending(), descriptors(t, p.server); d != 0 || fds > before {
			return fmt.Errorf("%v dials pending, %d descriptors, %d before", d, fds, before)
		}
		return nil
	})
}

// giveUpDial makes a dial whose client goes away while it is under way.
func (p *pair) giveUpDial(t *testing.T) {
	t.Helper()
	if p.mode == "grpc" {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if conn, err := p.dialer()(ctx, p.echo); err == nil {
			_ = conn.Close()
			t.Fatal("the agent is stopped, and a dial succeeds")
		}
		return
	}
	conn, err := net.Dial("unix", p.socket)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", p.echo)
	time.Sleep(10 * time.Millisecond) // so that the dial is under way
	_ = conn.Close()
}

// TestChurnLeak reproduces upstream's leak of the agent's sockets when clients of HTTP
// CONNECT go away during the dial. Ours leaves none.
func TestChurnLeak(t *testing.T) {
	const n = 300
	for _, from := range []release{v0_36_0, ours} {
		t.Run(from.String(), func(t *testing.T) {
			p := startPair(t, options{mode: "http-connect", server: from, agent: from})
			p.dial(t)
			open := func() int { return descriptors(t, p.server) + descriptors(t, p.agent) }
			leaks := func(limit time.Duration) bool {
				left := churn(t, p, n, open, limit)
				t.Logf("%s: %d descriptors are left after %d connections", from, left, n)
				return left > 0
			}
			if from != ours {
				reproduce(t, func() bool { return leaks(5 * time.Second) })
			} else if leaks(tunneltest.Patience) {
				t.Error("ours leaks")
			}
		})
	}
}

// churn connects n clients of HTTP CONNECT that go away during the dial, and returns
// how many descriptors more are open when that has not changed back within the time.
func churn(t *testing.T, p *pair, n int, open func() int, limit time.Duration) (left int) {
	t.Helper()
	before := open()
	for range n {
		conn, err := net.Dial("unix", p.socket)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", p.echo)
		_ = conn.Close()
	}
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if left = open() - before; left <= 0 {
			break
		}
	}
	return left
}
