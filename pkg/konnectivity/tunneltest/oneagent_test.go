// SPDX-License-Identifier: Apache-2.0

package tunneltest

import (
	"context"
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/internal/httpconnect"
	"github.com/fairlead-dev/fairlead/pkg/internal/httplimits"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/state"
)

// connecting serves the state of a rig's server on a socket, with connections through agents, as konnectivity-server does
// with --state-connect. It returns a client.
func connecting(t *testing.T, r *Rig) *state.Client {
	t.Helper()
	path := filepath.Join(ShortDir(t), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	srv := httplimits.Short.Server(state.Connecting(state.Handler(r.Server), r.Server))
	go func() { _ = srv.Serve(httplimits.Short.Listener(l)) }()
	t.Cleanup(func() { _ = srv.Close() })
	return unixClient(path)
}

func unixClient(path string) *state.Client {
	dial := func(ctx context.Context) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, "unix", path) }
	return &state.Client{Base: "http://server", Dial: dial, HTTP: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
	}}}
}

// TestOneAgent: a connection that names an agent goes through this agent, by either protocol, also if the server would choose
// another one. Half-close is passed on.
func TestOneAgent(t *testing.T) {
	t.Parallel()
	r := NewRig(t, server.Config{})
	r.StartAgent(agent.Config{AgentID: "one"}, "")
	r.StartAgent(agent.Config{AgentID: "two & more"}, "")
	target := Target(t, Echo)
	for name, client := range map[string]*state.Client{"state": connecting(t, r)} {
		t.Run(name, func(t *testing.T) {
			for _, id := range []string{"one", "two & more", "one", "one", "two & more", "two & more"} {
				c, err := client.Connect(t.Context(), target, &state.Agent{ID: id})
				if err != nil {
					t.Fatal(err)
				}
				echoes(t, c, 1, 100_000)
				all := r.Server.Connections(0, 10).Connections
				if len(all) != 1 || all[0].AgentID != id || all[0].Destination != target {
					t.Errorf("through %q: %+v", id, all)
				}
				if err := c.(*httpconnect.Conn).CloseWrite(); err != nil {
					t.Fatal(err)
				}
				if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil || !strings.Contains(err.Error(), "EOF") {
					t.Errorf("after the end: %d, %v", n, err)
				}
				_ = c.Close()
				Eventually(t, Patience, "the connection has ended", func() bool { return len(r.Server.Connections(0, 10).Connections) == 0 })
			}
		})
	}
}

// TestFrontendChoosesNoAgent: on the listener of kube-apiserver the server chooses, whatever agent a client names.
func TestFrontendChoosesNoAgent(t *testing.T) {
	t.Parallel()
	r := NewRig(t, server.Config{})
	r.StartAgent(agent.Config{AgentID: "one"}, "")
	c, err := unixClient(r.Connect).Connect(t.Context(), Target(t, Echo), &state.Agent{ID: "gone"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	echoes(t, c, 1, 1000)
}

// TestOneAgentIsMissing: if the agent that a connection names is not connected, or goes, the client hears so at once, though
// others are connected and the server waits for agents otherwise. An agent of another owner is another agent.
func TestOneAgentIsMissing(t *testing.T) {
	t.Parallel()
	r := NewRig(t, server.Config{AgentWait: time.Minute})
	r.StartAgent(agent.Config{AgentID: "one"}, "")
	leaving := r.StartAgent(agent.Config{AgentID: "two"}, "")
	client, target := connecting(t, r), Target(t, Echo)
	leaving.Stop()
	Eventually(t, Patience, "the agent is gone", func() bool { return !r.Server.Connected("two") })
	for _, a := range []state.Agent{{ID: "two"}, {ID: "three"}, {ID: "one", Owner: "node"}} {
		ctx, cancel := context.WithTimeout(t.Context(), Patience)
		c, err := client.Connect(ctx, target, &a)
		cancel()
		var refused *httpconnect.RefusedError
		if !errors.As(err, &refused) || !strings.Contains(refused.Status, "no_agent: ") {
			t.Errorf("%+v: %v, %v", a, c, err)
		}
	}
}

// TestStateWithoutConnect: a server that opens no connections says so.
func TestStateWithoutConnect(t *testing.T) {
	t.Parallel()
	r := NewRig(t, server.Config{})
	r.StartAgent(agent.Config{AgentID: "one"}, "")
	path := filepath.Join(ShortDir(t), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: state.Handler(r.Server), ReadHeaderTimeout: time.Minute}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close() })
	if _, err := unixClient(path).Connect(t.Context(), Target(t, Echo), &state.Agent{ID: "one"}); !errors.Is(err, state.ErrNoConnect) {
		t.Errorf("%v", err)
	}
}
