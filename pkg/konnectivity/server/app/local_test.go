// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bytes"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/klog/v2"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunneltest"
)

// TestLocalDestinations: without any agent, a client reaches a destination of the list, in both directions and with much
// data, and learns why one cannot be reached. All other destinations still need an agent.
func TestLocalDestinations(t *testing.T) {
	target, other := tunneltest.Target(t, tunneltest.Echo), tunneltest.Target(t, tunneltest.Echo)
	o := NewOptions()
	o.LocalDestinations = []string{target, "127.0.0.1:1"}
	s := server.New(server.Config{}, server.NewMetrics())
	if err := o.addLocal(s, klog.Background()); err != nil {
		t.Fatal(err)
	}
	dir := tunneltest.ShortDir(t)
	l, err := server.ListenUnix(filepath.Join(dir, "c"), true)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = s.ServeHTTPConnect(l, nil) }()
	defer s.Shutdown(t.Context())
	dial := tunneltest.Connect(filepath.Join(dir, "c"))
	c, err := dial(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(tunneltest.Patience))
	sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<18)
	go func() { _, _ = c.Write(sent) }()
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%d bytes did not come back: %v", len(sent), err)
	}
	if st := s.State(); st.Server.LocalConnections != 1 || len(st.Links) != 0 {
		t.Errorf("state: %+v", st)
	}
	if page := s.Connections(0, 10); len(page.Connections) != 1 || page.Connections[0].Destination != target || page.Connections[0].AgentID != "" {
		t.Errorf("connections: %+v", page)
	}
	_ = c.Close()
	if _, err := dial(t.Context(), "127.0.0.1:1"); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("a destination that refuses: %v", err)
	}
	if _, err := dial(t.Context(), other); err == nil || !strings.Contains(err.Error(), "No agent available") {
		t.Errorf("a destination that is not in the list: %v", err)
	}
}

// TestLocalRules: a destination without a port is refused.
func TestLocalRules(t *testing.T) {
	for text, ok := range map[string]bool{"10.0.0.1:443": true, "10.0.0.0/8:443": true, "a.svc:443": true, "[::1]:443": true, "10.0.0.1": false, "10.0.0.0/8": false, "a:b": false} {
		o := NewOptions()
		o.LocalDestinations = []string{text}
		if _, err := o.localRules(); (err == nil) != ok {
			t.Errorf("%s: %v", text, err)
		}
	}
}
