// SPDX-License-Identifier: Apache-2.0

package collect_test

import (
	"context"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/apis/tunnel/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/internal/httplimits"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/state"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunneltest"
	"github.com/fairlead-dev/fairlead/pkg/tunnelapi/internal/collect"
)

// showHeld serves the state of a real server, with the limits of such listeners. Requests for connections wait until the
// test ends.
func showHeld(t *testing.T, r *tunneltest.Rig, waiting *atomic.Int32) (url string) {
	t.Helper()
	path := filepath.Join(tunneltest.ShortDir(t), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	inner := state.Handler(r.Server)
	limits := httplimits.Short
	limits.Conns = 32
	srv := limits.Server(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == state.ConnectionsPath {
			waiting.Add(1)
			<-over
		}
		inner.ServeHTTP(w, req)
	}))
	go func() { _ = srv.Serve(limits.Listener(l)) }()
	t.Cleanup(func() { close(over); _ = srv.Close() })
	return "unix://" + path
}

// TestListsLeaveRoom: however many connections are asked for at a time, the server that they are asked of shows its state.
func TestListsLeaveRoom(t *testing.T) {
	var waiting atomic.Int32
	e := &collect.Endpoints{URLs: []string{showHeld(t, tunneltest.NewRig(t, server.Config{ServerID: "one"}), &waiting)}}
	found, err := e.Find(t.Context())
	if err != nil || len(found) != 1 {
		t.Fatal(found, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	for _, asker := range found {
		for range 40 {
			all.Go(func() { _, _ = asker.Connections(ctx, 0, 1) })
		}
		tunneltest.Eventually(t, tunneltest.Patience, "requests wait", func() bool { return waiting.Load() > collect.MaxScans })
		for range 10 {
			if _, err := asker.State(t.Context()); err != nil {
				t.Fatalf("beside %d requests: %v", waiting.Load(), err)
			}
			time.Sleep(50 * time.Millisecond) // no more requests may begin
		}
		if n := waiting.Load(); n != collect.MaxScans+1 {
			t.Errorf("%d requests at a time", n)
		}
	}
}

// TestOneConnection: a connection is asked of the server that its name is of. A name of no server is unknown only if all are
// known.
func TestOneConnection(t *testing.T) {
	t.Parallel()
	const limit = 2 * time.Second
	one, other := tunneltest.NewRig(t, server.Config{ServerID: "one"}), tunneltest.NewRig(t, server.Config{ServerID: "two"})
	one.StartAgent(agent.Config{AgentID: "a1"}, "")
	first, _ := showFreezable(t, one)
	second, freeze := showFreezable(t, other)
	c := collect.New(collect.Config{Finder: &collect.Endpoints{URLs: []string{first, second}}, Agents: discard{}, Servers: discard{}, Timeout: limit, StaleAfter: time.Hour})
	c.Round(t.Context())
	nc, err := tunneltest.Connect(one.Connect)(t.Context(), tunneltest.Target(t, tunneltest.Echo))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	var listed []*v1alpha1.TunnelConnection
	tunneltest.Eventually(t, tunneltest.Patience, "a connection", func() bool {
		listed, _, err = c.Connections(t.Context(), func(*v1alpha1.TunnelConnection) bool { return true }, 10)
		return err == nil && len(listed) == 1
	})
	freeze()
	name := listed[0].Name
	for range 3 {
		begin := time.Now()
		o, err := c.Connection(t.Context(), name)
		if err != nil || o == nil || o.UID != listed[0].UID || time.Since(begin) > limit {
			t.Fatalf("%s: %v, %v after %v", name, o, err, time.Since(begin))
		}
	}
	for _, none := range []string{"one-000000000099", "one-1", "one-", "one", "-", "", "one--00000000001", "one-99999999999999999999", "three-000000000001", name + "0"} {
		if o, err := c.Connection(t.Context(), none); o != nil || err != nil {
			t.Errorf("%q: %v, %v", none, o, err)
		}
	}
	if o, err := c.Connection(t.Context(), "two-000000000001"); err == nil || !strings.Contains(err.Error(), "konnectivity-server two") {
		t.Errorf("of a frozen server: %v, %v", o, err)
	}
}
