// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
)

// slowCA is a provider that has its CA some time after Run.
type slowCA struct {
	dynamiccertificates.CAContentProvider
	after  time.Duration
	loaded chan struct{}
}

func (s *slowCA) CurrentCABundleContent() []byte {
	select {
	case <-s.loaded:
		return []byte("a CA")
	default:
		return nil
	}
}

func (s *slowCA) RunOnce(context.Context) error { return nil }

func (s *slowCA) Run(ctx context.Context, _ int) {
	select {
	case <-time.After(s.after):
		close(s.loaded)
	case <-ctx.Done():
	}
}

// TestLoadedCA: the first load of the CAs ends when the front proxy's is there, and says what to do if it does not come.
// It observes AGG-20 of docs/requirements.md.
func TestLoadedCA(t *testing.T) {
	for name, c := range map[string]struct {
		after time.Duration
		want  string
	}{"comes": {time.Second, ""}, "does not come": {time.Minute, "check that the server may read ConfigMap"}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				ca := &slowCA{after: c.after, loaded: make(chan struct{})}
				err := (&loadedCA{CAContentProvider: ca, controller: ca, frontProxy: ca, patience: caPatience}).RunOnce(ctx)
				if c.want == "" && (err != nil || len(ca.CurrentCABundleContent()) == 0) {
					t.Errorf("it ends without a CA: %v", err)
				}
				if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
					t.Errorf("want an error with %q, not %v", c.want, err)
				}
			})
		})
	}
}

// TestNoReader: a server that may not read the front proxy's CA does not start. Otherwise all users would be anonymous.
// It observes EXT-18 of docs/requirements.md.
func TestNoReader(t *testing.T) {
	t.Parallel()
	refuses := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"no right to read it"}`))
	}))
	defer refuses.Close()
	o := NewOptions()
	o.Servers, o.Kubeconfig = []string{"unix:///none"}, filepath.Join(t.TempDir(), "kubeconfig")
	kubeconfig := fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c}}]\nclusters: [{name: c, cluster: {server: %q}}]\n", refuses.URL)
	if err := os.WriteFile(o.Kubeconfig, []byte(kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	o.SecureServing.Listener, o.SecureServing.BindPort, o.SecureServing.ServerCert.CertDirectory = l, l.Addr().(*net.TCPAddr).Port, t.TempDir()
	if err := o.complete(); err != nil {
		t.Fatal(err)
	}
	if _, err := o.config(); err == nil || !strings.Contains(err.Error(), "delegated authentication") {
		t.Errorf("want that it does not start, got %v", err)
	}
}
