// SPDX-License-Identifier: Apache-2.0

package collect_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fairlead-dev/fairlead/pkg/apis/tunnel/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/internal/httpconnect"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/state"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunneltest"
	"github.com/fairlead-dev/fairlead/pkg/tunnelapi/internal/collect"
)

// showState serves the state of a real server on a socket, with connections through agents.
func showState(t *testing.T, r *tunneltest.Rig) (url string, stop func()) {
	t.Helper()
	path := filepath.Join(tunneltest.ShortDir(t), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: state.Connecting(state.Handler(r.Server), r.Server), ReadHeaderTimeout: time.Minute}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close() })
	return "unix://" + path, func() { _ = srv.Close() }
}

// discard takes no objects.
type discard struct{}

func (discard) Put(string, runtime.Object) error { return nil }
func (discard) Remove(string) error              { return nil }

// TestConnect: a connection goes through the agent that it names, at any of the servers that have a link to it. A server that
// does not answer, or has lost the link, is passed over; a destination that refuses is not asked again.
func TestConnect(t *testing.T) {
	t.Parallel()
	one, two := tunneltest.NewRig(t, server.Config{ServerID: "one"}), tunneltest.NewRig(t, server.Config{ServerID: "two"})
	for _, r := range []*tunneltest.Rig{one, two} {
		r.StartAgent(agent.Config{AgentID: "other"}, "")
	}
	atOne := one.StartAgent(agent.Config{AgentID: "a1"}, "")
	two.StartAgent(agent.Config{AgentID: "a1"}, "")
	first, _ := showState(t, one)
	second, stopSecond := showState(t, two)
	c := collect.New(collect.Config{Finder: &collect.Endpoints{URLs: []string{first, second}}, Agents: discard{}, Servers: discard{}})
	c.Round(t.Context())
	target := tunneltest.Target(t, tunneltest.Echo)
	both := &v1alpha1.TunnelAgent{Status: v1alpha1.TunnelAgentStatus{AgentID: "a1", Servers: []v1alpha1.AgentServer{{ServerID: "one"}, {ServerID: "two"}}}}
	open := func(a *v1alpha1.TunnelAgent, address string) error {
		ctx, cancel := context.WithTimeout(t.Context(), tunneltest.Patience)
		defer cancel()
		nc, err := c.Connect(ctx, a, address)
		if err != nil {
			return err
		}
		defer nc.Close()
		if _, err := io.WriteString(nc, "x"); err != nil {
			return err
		}
		_, err = io.ReadFull(nc, make([]byte, 1))
		return err
	}
	for range 8 { // both servers get some
		if err := open(both, target); err != nil {
			t.Fatal(err)
		}
	}
	dials := func(r *tunneltest.Rig) (n int64) {
		for _, l := range r.Server.State().Links {
			if l.AgentID == "other" && l.DialsTotal > 0 {
				t.Errorf("another agent has got %d dials", l.DialsTotal)
			}
			n += l.DialsTotal
		}
		return n
	}
	if n := dials(one) + dials(two); n != 8 {
		t.Errorf("8 connections are %d dials", n)
	}
	if err := open(both, "127.0.0.1:1"); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("a closed port: %v", err)
	}
	if n := dials(one) + dials(two); n != 9 {
		t.Errorf("a closed port was dialed %d times", n-8)
	}
	atOne.Stop()
	tunneltest.Eventually(t, tunneltest.Patience, "the agent is gone", func() bool { return !one.Server.Connected("a1") })
	for range 8 {
		if err := open(both, target); err != nil {
			t.Fatalf("one of two servers has lost the link: %v", err)
		}
	}
	stopSecond()
	if err := open(both, target); err == nil {
		t.Error("a connection without a server that has a link")
	}
	if err := open(&v1alpha1.TunnelAgent{Status: v1alpha1.TunnelAgentStatus{AgentID: "a1"}}, target); !errors.Is(err, collect.ErrNoLink) {
		t.Errorf("an agent without servers: %v", err)
	}
}

// TestConnectBesideFullServer: a server that is full, or cannot review the token now, is passed over. If no other is left, its
// answer is the error.
func TestConnectBesideFullServer(t *testing.T) {
	t.Parallel()
	r := tunneltest.NewRig(t, server.Config{ServerID: "one"})
	r.StartAgent(agent.Config{AgentID: "a1"}, "")
	good, _ := showState(t, r)
	full := tunneltest.NewRig(t, server.Config{ServerID: "two"})
	path := filepath.Join(tunneltest.ShortDir(t), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	var text atomic.Value
	inner := state.Handler(full.Server)
	srv := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method == http.MethodConnect {
			httpconnect.Refuse(w, req, http.StatusServiceUnavailable, text.Load().(string))
			return
		}
		inner.ServeHTTP(w, req)
	})}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close() })
	c := collect.New(collect.Config{Finder: &collect.Endpoints{URLs: []string{good, "unix://" + path}}, Agents: discard{}, Servers: discard{}})
	c.Round(t.Context())
	target := tunneltest.Target(t, tunneltest.Echo)
	for _, reason := range []string{"limit: 4096 connections through agents are open here", "the token cannot be reviewed now"} {
		text.Store(reason)
		a := &v1alpha1.TunnelAgent{Status: v1alpha1.TunnelAgentStatus{AgentID: "a1", Servers: []v1alpha1.AgentServer{{ServerID: "one"}, {ServerID: "two"}}}}
		for range 8 { // in random order
			nc, err := c.Connect(t.Context(), a, target)
			if err != nil {
				t.Fatalf("%s: %v", reason, err)
			}
			_ = nc.Close()
		}
		a.Status.Servers = a.Status.Servers[1:]
		if _, err := c.Connect(t.Context(), a, target); err == nil || !strings.Contains(err.Error(), "503 "+reason) {
			t.Errorf("%s: %v", reason, err)
		}
	}
}
