// SPDX-License-Identifier: Apache-2.0

package collect_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/apis/tunnel/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/state"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunneltest"
	"github.com/fairlead-dev/fairlead/pkg/tunnelapi/internal/collect"
)

// showFreezable serves the state of a real server. Frozen, it takes connections and requests and answers none, as a process
// that SIGSTOP has stopped.
func showFreezable(t *testing.T, r *tunneltest.Rig) (url string, freeze func()) {
	t.Helper()
	path := filepath.Join(tunneltest.ShortDir(t), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	var frozen atomic.Bool
	over := make(chan struct{})
	inner := state.Connecting(state.Handler(r.Server), r.Server)
	srv := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if frozen.Load() {
			<-over
			return
		}
		inner.ServeHTTP(w, req)
	})}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { close(over); _ = srv.Close() })
	return "unix://" + path, func() { frozen.Store(true) }
}

// two is a collector of two servers with a link to one agent, of which the second can freeze.
type two struct {
	c      *collect.Collector
	freeze func()
}

const (
	pollInterval = 50 * time.Millisecond
	pollTimeout  = time.Second
	staleAfter   = 4 * time.Second
)

func newTwo(t *testing.T) *two {
	t.Helper()
	one, other := tunneltest.NewRig(t, server.Config{ServerID: "one"}), tunneltest.NewRig(t, server.Config{ServerID: "two"})
	one.StartAgent(agent.Config{AgentID: "a1"}, "")
	other.StartAgent(agent.Config{AgentID: "a1"}, "")
	first, _ := showFreezable(t, one)
	second, freeze := showFreezable(t, other)
	w := &two{freeze: freeze}
	w.c = collect.New(collect.Config{Finder: &collect.Endpoints{URLs: []string{first, second}}, Agents: discard{}, Servers: discard{},
		Interval: pollInterval, Timeout: pollTimeout, StaleAfter: staleAfter})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); w.c.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	tunneltest.Eventually(t, tunneltest.Patience, "the servers are asked", func() bool { return w.c.Ready() == nil })
	return w
}

// open connects in the time, and returns how long that took.
func (w *two) open(t *testing.T, limit time.Duration, address string, servers ...string) (time.Duration, error) {
	t.Helper()
	a := &v1alpha1.TunnelAgent{Status: v1alpha1.TunnelAgentStatus{AgentID: "a1"}}
	for _, id := range servers {
		a.Status.Servers = append(a.Status.Servers, v1alpha1.AgentServer{ServerID: id})
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	begin := time.Now()
	nc, err := w.c.Connect(ctx, a, address)
	if err == nil {
		_ = nc.Close()
	}
	return time.Since(begin), err
}

// TestConnectBesideFrozenServer: a server that has frozen delays a connection by no more than its share of the time, and by
// nothing once its state is stale. If no other server is left, the error says that the server is the cause.
func TestConnectBesideFrozenServer(t *testing.T) {
	t.Parallel()
	w := newTwo(t)
	target := tunneltest.Target(t, tunneltest.Echo)
	w.freeze()
	for range 8 { // in random order
		if _, err := w.open(t, 8*time.Second, target, "one", "two"); err != nil {
			t.Fatalf("one of two servers has just frozen: %v", err)
		}
	}
	time.Sleep(staleAfter + pollTimeout + pollInterval) // the state is stale then, whatever the collector asked last
	for range 8 {
		if took, err := w.open(t, tunneltest.Patience, target, "two", "one"); err != nil || took > tunneltest.Patience/4 {
			t.Fatalf("one of two servers has frozen long ago: %v after %v", err, took)
		}
	}
	if _, err := w.open(t, 3*time.Second, target, "two"); !errors.Is(err, collect.ErrSilent) {
		t.Errorf("the only server has frozen: %v", err)
	}
}

// TestConnectToSilentDestination: a destination that does not answer is not blamed on the servers, which go on answering.
func TestConnectToSilentDestination(t *testing.T) {
	t.Parallel()
	w := newTwo(t)
	if _, err := w.open(t, 6*time.Second, tunneltest.BlackHole(t), "one", "two"); err == nil || errors.Is(err, collect.ErrSilent) {
		t.Errorf("a silent destination: %v", err)
	}
}

// TestFrozenTLSServer: a server at an https URL that takes connections and never ends a handshake does not hold a
// connection for all its time.
func TestFrozenTLSServer(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() }) // what it has not taken waits in the kernel
	dir := t.TempDir()
	token := filepath.Join(dir, "token")
	if err := os.WriteFile(token, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	e := &collect.Endpoints{URLs: []string{"https://" + l.Addr().String()}, CAFile: tunneltest.NewCA(t, dir).File, TokenFile: token}
	found, err := e.Find(t.Context())
	if err != nil || len(found) != 1 {
		t.Fatal(found, err)
	}
	for _, asker := range found {
		ctx, cancel := context.WithTimeout(t.Context(), tunneltest.Patience)
		defer cancel()
		_, err := asker.(interface {
			Connect(ctx context.Context, address string, agent *state.Agent) (net.Conn, error)
		}).Connect(ctx, "192.0.2.1:80", nil)
		if err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), "timeout") && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a frozen server: %v, and the time of the connection: %v", err, ctx.Err())
		}
	}
}
