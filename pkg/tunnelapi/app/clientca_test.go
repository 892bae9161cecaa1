// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
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
