// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunneltest"
)

// TestDescriptorsRunOut checks that a program without free file descriptors refuses new
// connections with that reason, keeps its existing connections, and recovers.
func TestDescriptorsRunOut(t *testing.T) {
	testutil.Full(t, "uses up all file descriptors")
	for _, mode := range modes {
		for _, who := range []string{"server", "agent"} {
			t.Run(mode+"/"+who, func(t *testing.T) {
				p := startPair(t, options{mode: mode})
				old := p.dial(t)
				tr := tunneltest.StartTraffic(t, p.dialer(), nil)
				tr.Down.Store(true)
				pid := p.server.PID()
				if who == "agent" {
					pid = p.agent.PID()
				}
				limit(t, pid, 64)
				var failure error
				var open []interface{ Close() error }
				dial := p.dialer()
				for range 100 {
					ctx, cancel := timeout(t, 2*time.Second)
					c, err := dial(ctx, p.echo)
					cancel()
					if failure = err; err != nil {
						break
					}
					open = append(open, c)
				}
				if failure == nil {
					t.Error("100 connections were made with 64 descriptors")
				} else if want := refusals[mode+"/"+who]; !strings.Contains(failure.Error(), want) {
					t.Errorf("the dial failed with %v, want %q", failure, want)
				}
				if err := roundTrip(old); err != nil {
					t.Errorf("a connection from before: %v", err)
				}
				for _, c := range open {
					_ = c.Close()
				}
				freed := time.Now()
				daemontest.Eventually(t, startBound, func() error {
					ctx, cancel := timeout(t, 5*time.Second)
					defer cancel()
					c, err := dial(ctx, p.echo)
					if err != nil {
						return err
					}
					return c.Close()
				})
				tunneltest.Unavailable(t, time.Since(freed))
				if err := roundTrip(old); err != nil {
					t.Errorf("a connection from before, after the recovery: %v", err)
				}
				tr.Progress()
				tr.End()
				if n := tr.Cut(); n > 0 {
					t.Errorf("%d transfers were cut", n)
				}
			})
		}
	}
}

// refusals are the errors of a dial when a program has no free file descriptors. A gRPC
// client is cut off before its HTTP/2 connection is established, and retries until its
// deadline.
var refusals = map[string]string{
	"http-connect/server": "503 limit: server has no free file descriptors",
	"grpc/server":         "connection error: desc",
	"http-connect/agent":  "503 limit: dial tcp",
	"grpc/agent":          "too many open files",
}

// limit sets how many file descriptors a process may have.
func limit(t *testing.T, pid int, n uint64) {
	t.Helper()
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: n, Max: n}, nil); err != nil {
		t.Fatal(os.NewSyscallError("prlimit", err))
	}
}

// TestDescriptorsRunOutTLS checks that a server without free file descriptors lets no
// client wait at its TLS ports. HTTP CONNECT clients get the reason. The connections of
// other clients, and of agents, are closed. The server keeps its existing connections,
// and recovers.
func TestDescriptorsRunOutTLS(t *testing.T) {
	testutil.Full(t, "uses up all file descriptors")
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			files := daemontest.Certificate(t)
			p, frontend := startOverTCP(t, options{mode: mode}, files)
			cfg := mutual(t, files)
			dial := tunneltest.ConnectTLS(frontend, cfg)
			if mode == "grpc" {
				dial = tunneltest.GRPCTLS(frontend, cfg)
			}
			old, err := dial(t.Context(), p.echo)
			if err != nil {
				t.Fatalf("dial over TCP: %v", err)
			}
			defer old.Close()
			held := useUp(t, p, frontend, cfg)
			for range 8 {
				if mode == "grpc" {
					held = append(held, noneWaits(t, frontend, cfg))
				} else if c := refused(t, dial, p.echo); c != nil {
					held = append(held, c)
				}
				held = append(held, noneWaits(t, p.agents, &tls.Config{InsecureSkipVerify: true})) // the agents' port has a certificate of another CA
			}
			p.launchAgent() // retries until the server accepts it
			if err := roundTrip(old); err != nil {
				t.Errorf("a connection from before: %v", err)
			}
			for _, c := range held {
				_ = c.Close()
			}
			daemontest.Eventually(t, startBound, backends(p, 2))
			ctx, cancel := context.WithTimeout(t.Context(), startBound)
			defer cancel()
			c, err := dial(ctx, p.echo)
			if err != nil {
				t.Fatalf("dial after the recovery: %v", err)
			}
			_ = c.Close()
			for _, listener := range []string{mode, "agents"} {
				n, err := metric(p.serverHealth, `fairlead_tunnel_server_turned_away_total{listener="`+listener+`"}`)
				if err != nil || n < 3 {
					t.Errorf("%v, %v turned away at %s, want nearly all of 8", n, err, listener)
				}
			}
		})
	}
}

// useUp opens as many TLS connections as the server has file descriptors for.
func useUp(t *testing.T, p *pair, addr string, cfg *tls.Config) (held []net.Conn) {
	t.Helper()
	const few = 64
	limit(t, p.server.PID(), few)
	for range few - descriptors(t, p.server) + 2 { // after the last free one, the server refuses connections
		ctx, cancel := timeout(t, startBound)
		c, err := (&tls.Dialer{Config: cfg}).DialContext(ctx, "tcp", addr)
		cancel()
		if err != nil { // something else has taken the last descriptor
			return held
		}
		t.Cleanup(func() { _ = c.Close() })
		held = append(held, c)
	}
	return held
}

// refused checks that a dial fails with the reason, or succeeds with a file descriptor
// that was freed.
func refused(t *testing.T, dial tunneltest.Dialer, addr string) net.Conn {
	t.Helper()
	ctx, cancel := timeout(t, startBound)
	defer cancel()
	c, err := dial(ctx, addr)
	if want := refusals["http-connect/server"]; err != nil && !strings.Contains(err.Error(), want) {
		t.Errorf("the dial failed with %v, want %q", err, want)
	}
	return c
}

// noneWaits checks that the server closes a connection, or serves it with a file
// descriptor that was freed. The connection then keeps the descriptor.
func noneWaits(t *testing.T, addr string, cfg *tls.Config) net.Conn {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	start := time.Now()
	_ = nc.SetDeadline(start.Add(startBound))
	c := tls.Client(nc, cfg)
	if err = c.Handshake(); err == nil {
		_, err = c.Read(make([]byte, 100))
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%s: a connection waits without a descriptor: %v", addr, err)
	}
	t.Logf("%s: after %v: %v", addr, time.Since(start).Round(time.Millisecond), err)
	return nc
}
