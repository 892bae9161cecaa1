// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/state"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunneltest"
)

// TestStateSocket: a client gets the state of the server over the socket, and a clear refusal of a bad page.
func TestStateSocket(t *testing.T) {
	s := server.New(server.Config{ServerID: "s1", ServerCount: 3}, server.NewMetrics())
	defer s.Shutdown(t.Context())
	o := NewOptions()
	o.StateSocket = filepath.Join(tunneltest.ShortDir(t), "s")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if err := o.serveState(ctx, server.NewMetrics(), &stateSource{o: o, s: s}, nil); err != nil {
		t.Fatal(err)
	}
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", o.StateSocket)
	}}
	defer tr.CloseIdleConnections()
	c := &state.Client{HTTP: &http.Client{Transport: tr}, Base: "http://server"}
	st, err := c.State(t.Context())
	if err != nil || st.Server.ID != "s1" || st.Server.Count != 3 || st.Server.CountMode != state.CountByFlag || st.Server.Host == "" || st.Server.ProgramVersion == "" {
		t.Errorf("%+v, %v", st, err)
	}
	if page, err := c.Connections(t.Context(), 0, 10); err != nil || len(page.Connections) != 0 || page.More {
		t.Errorf("%+v, %v", page, err)
	}
	if _, err := c.Connections(t.Context(), 0, state.MaxLimit+1); err == nil || !strings.Contains(err.Error(), "not between 1 and") {
		t.Errorf("a limit that is too great: %v", err)
	}
	c.Base += "/other"
	if _, err := c.State(t.Context()); !errors.Is(err, state.ErrOlder) {
		t.Errorf("a path that the server does not have: %v", err)
	}
}

// TestStateAddress: the state port listens where agents connect, and at no other address, unless
// its own flag says so.
func TestStateAddress(t *testing.T) {
	ca := tunneltest.NewCA(t, t.TempDir())
	for _, tc := range []struct{ agents, state, open, closed string }{
		{"127.0.0.2", "", "127.0.0.2", "127.0.0.3"},
		{"127.0.0.2", "127.0.0.3", "127.0.0.3", "127.0.0.2"},
	} {
		free, err := net.Listen("tcp", "127.0.0.2:0")
		if err != nil {
			t.Fatal(err)
		}
		o := NewOptions()
		o.StatePort, o.StateServiceAccount = free.Addr().(*net.TCPAddr).Port, "a/b"
		_ = free.Close()
		o.AgentBindAddress, o.StateBindAddress = tc.agents, tc.state
		o.ClusterCert, o.ClusterKey = ca.Issue(t, "server", time.Now().Add(time.Hour))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s := server.New(server.Config{}, server.NewMetrics())
		defer s.Shutdown(t.Context())
		if err := o.serveState(ctx, server.NewMetrics(), &stateSource{o: o, s: s}, nil); err != nil {
			t.Fatal(err)
		}
		for host, want := range map[string]bool{tc.open: true, tc.closed: false} {
			c, err := net.DialTimeout("tcp", net.JoinHostPort(host, strconv.Itoa(o.StatePort)), 10*time.Second)
			if err == nil {
				_ = c.Close()
			}
			if (err == nil) != want {
				t.Errorf("%+v: %s: %v", tc, host, err)
			}
		}
	}
}

// TestValidateState: the port for state needs to know whose tokens it accepts.
func TestValidateState(t *testing.T) {
	for account, want := range map[string]string{"": "NAMESPACE/NAME", "a": "NAMESPACE/NAME", "/b": "NAMESPACE/NAME", "a/b/c": "NAMESPACE/NAME", "a/b": ""} {
		o := NewOptions()
		o.StatePort, o.StateServiceAccount = 8093, account
		err := o.validateState()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", account, err)
		}
	}
	o := NewOptions()
	o.StatePort = 80
	if err := o.validateState(); err == nil || !strings.Contains(err.Error(), "between 1024 and 49151") {
		t.Errorf("port 80: %v", err)
	}
}
