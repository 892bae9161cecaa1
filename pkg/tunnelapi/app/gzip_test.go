// SPDX-License-Identifier: Apache-2.0

package app

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/pkg/apis/tunnel/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/state"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunneltest"
)

// crowd is a server with so many agents.
type crowd int

func (n crowd) State() state.State {
	s := state.State{Version: 1, Time: time.Now(), Server: state.Server{ID: "crowd", Ready: true}}
	for i := range int(n) {
		s.Links = append(s.Links, state.Link{AgentID: fmt.Sprintf("agent-%04d", i), Owner: "node"})
	}
	return s
}

func (crowd) Connections(int64, int) state.Connections { return state.Connections{Version: 1} }

// TestGzip: a large answer is compressed for a client that accepts this, and for no other; a small one is not.
// It observes API-29 of docs/requirements.md.
func TestGzip(t *testing.T) {
	t.Parallel()
	const agents = 1000
	path := filepath.Join(tunneltest.ShortDir(t), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: state.Handler(crowd(agents)), ReadHeaderTimeout: time.Minute}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close() })
	cfg := start(t, "unix://"+path)
	for _, c := range []struct {
		path, accept, encoding string
	}{
		{"/tunnelagents", "gzip", "gzip"}, {"/tunnelagents", "", ""}, {"/tunnelagents/agent-0001", "gzip", ""},
	} {
		encoding, body := encoded(t, cfg, c.path, c.accept)
		if encoding != c.encoding {
			t.Errorf("%s with Accept-Encoding %q is encoded as %q", c.path, c.accept, encoding)
		}
		var list v1alpha1.TunnelAgentList
		if err := json.NewDecoder(body).Decode(&list); err != nil || strings.HasSuffix(c.path, "s") && len(list.Items) != agents {
			t.Errorf("%s with Accept-Encoding %q: %d agents, %v", c.path, c.accept, len(list.Items), err)
		}
	}
}

// encoded sends a request with an Accept-Encoding of its own, and decodes the answer.
func encoded(t *testing.T, cfg *rest.Config, path, accept string) (encoding string, body io.Reader) {
	t.Helper()
	plain := rest.CopyConfig(cfg)
	plain.DisableCompression = true // the transport's own header
	client, err := rest.HTTPClientFor(plain)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, strings.TrimSuffix(cfg.Host, "/")+groupPath+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if accept != "" {
		req.Header.Set("Accept-Encoding", accept)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", path, resp.Status)
	}
	encoding, body = resp.Header.Get("Content-Encoding"), resp.Body
	if encoding == "gzip" {
		if body, err = gzip.NewReader(resp.Body); err != nil {
			t.Fatal(err)
		}
	}
	return encoding, body
}
