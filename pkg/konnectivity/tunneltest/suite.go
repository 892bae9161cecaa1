// SPDX-License-Identifier: Apache-2.0

package tunneltest

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/testutil"
)

// Pair describes the server and agent that the suite runs against.
type Pair struct {
	Dial Dialer
	// MayLose is how many of 20 connections that write and then close may lose data.
	// Fairlead's server can only delay its close toward upstream's agent, which discards
	// what it has not passed on. Upstream's pair loses most of them.
	MayLose int
	// SlowClients and SlowTargets: a connection whose client, or whose target, does not read
	// does not block others. Upstream's server does not ensure the first, and its agent does
	// not ensure the second.
	SlowClients, SlowTargets bool
	// HalfClose: the pair can close one direction alone.
	HalfClose bool
	// Overtakes: the first bytes of a destination that speaks first may arrive together with
	// the answer to the dial, which breaks the connection. Upstream's server does that when
	// it is busy.
	Overtakes bool
	// Failure is a substring of the error of a refused dial.
	Failure string
}

// Run runs the suite.
func Run(t *testing.T, p Pair) {
	t.Run("integrity", func(t *testing.T) { integrity(t, p) })
	t.Run("small writes", func(t *testing.T) { smallWrites(t, p) })
	t.Run("target speaks first", func(t *testing.T) { speaksFirst(t, p) })
	t.Run("target closes", func(t *testing.T) { targetCloses(t, p) })
	t.Run("refused dial", func(t *testing.T) { refusedDial(t, p) })
	t.Run("write then close", func(t *testing.T) { writeThenClose(t, p) })
	if p.HalfClose {
		t.Run("half-close", func(t *testing.T) { halfClose(t, p) })
	}
	if p.SlowClients {
		t.Run("isolation (upstream #180), clients do not read", func(t *testing.T) { isolation(t, p, stallClient) })
	}
	if p.SlowTargets {
		t.Run("isolation (upstream #180), targets do not read", func(t *testing.T) { isolation(t, p, stallTarget) })
	}
	t.Run("churn", func(t *testing.T) { churn(t, p) })
}

// Target serves each connection with f and returns the address.
func Target(t testing.TB, f func(c net.Conn)) string {
	t.Helper()
	return TargetAt(t, "127.0.0.1:0", f)
}

// TargetAt is Target that listens on an address.
func TargetAt(t testing.TB, address string, f func(c net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	testutil.Serve(t, l, f)
	return l.Addr().String()
}

// Echo is a target that sends back what it gets.
func Echo(c net.Conn) { _, _ = io.Copy(c, c) }

// MustDial dials or ends the test.
func MustDial(t testing.TB, d Dialer, addr string) net.Conn {
	t.Helper()
	c, err := d(context.Background(), addr)
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// readFull reads with a time limit, because tunneled connections support no deadlines.
func readFull(c net.Conn, b []byte, limit time.Duration) (int, error) {
	type result struct {
		n   int
		err error
	}
	ch := make(chan result, 1)
	go func() { n, err := io.ReadFull(c, b); ch <- result{n, err} }()
	select {
	case r := <-ch:
		return r.n, r.err
	case <-time.After(limit):
		c.Close()
		return 0, errors.New("nothing came in time")
	}
}

func refusedDial(t *testing.T, p Pair) {
	c, err := p.Dial(context.Background(), "127.0.0.1:1") // the kernel assigns no process this port by chance
	if err == nil {
		c.Close()
		t.Fatal("dial to a closed port succeeded")
	}
	if !strings.Contains(err.Error(), p.Failure) {
		t.Errorf("error %q, want %q", err, p.Failure)
	}
}
