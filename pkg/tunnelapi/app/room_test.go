// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/state"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunneltest"
)

// busy is a server with so many connections.
type busy int64

func (busy) State() state.State {
	return state.State{Version: 1, Time: time.Now(), Server: state.Server{ID: "busy", Ready: true}}
}

func (n busy) Connections(after int64, limit int) state.Connections {
	out := state.Connections{Version: 1, Time: time.Now(), ServerID: "busy"}
	for serial := after + 1; serial <= int64(n); serial++ {
		if len(out.Connections) == limit {
			out.More = true
			break
		}
		out.Connections = append(out.Connections, state.Connection{Serial: serial, AgentID: "agent", Owner: "node", Destination: fmt.Sprintf("192.0.2.1:%d", serial)})
	}
	return out
}

// TestRoom: while clients do not read their large lists, others are to try again later. When those clients have gone, they
// get their lists.
func TestRoom(t *testing.T) {
	t.Parallel()
	testutil.Limit(t, 3*time.Minute) // it writes tables of 60,000 rows
	path := filepath.Join(tunneltest.ShortDir(t), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: state.Handler(busy(60_000)), ReadHeaderTimeout: time.Minute}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close() })
	cfg := start(t, "unix://"+path)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	for range 2 {
		resp := listAll(ctx, t, cfg)
		defer func() { _ = resp.Body.Close() }()
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("a list that is not read: %s", resp.Status)
		}
	}
	resp := listAll(t.Context(), t, cfg)
	body, _ := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") == "" || !strings.Contains(string(body), "in pages") {
		t.Errorf("a list beside two that are not read: %s, Retry-After %q, %.300s", resp.Status, resp.Header.Get("Retry-After"), body)
	}
	leave()
	tunneltest.Eventually(t, tunneltest.Patience, "the list is answered", func() bool {
		resp := listAll(t.Context(), t, cfg)
		defer func() { _ = resp.Body.Close() }()
		_, err := io.Copy(io.Discard, resp.Body)
		return resp.StatusCode == http.StatusOK && err == nil
	})
}

// listAll asks for a table of all connections.
func listAll(ctx context.Context, t *testing.T, cfg *rest.Config) *http.Response {
	t.Helper()
	own := rest.CopyConfig(cfg)
	own.DisableCompression = true
	client, err := rest.HTTPClientFor(own)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(cfg.Host, "/")+groupPath+"/tunnelconnections", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "application/json;as=Table;g=meta.k8s.io;v=v1")
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}
