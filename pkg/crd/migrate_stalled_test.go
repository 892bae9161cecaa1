// SPDX-License-Identifier: Apache-2.0

package crd_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/pkg/crd/migrate"
)

// stalling is a transport that does not answer some requests.
type stalling struct {
	next http.RoundTripper
	// late is whether a request ends with the client's own limit. Otherwise it ends at once, with the same error.
	late bool
	hit  func(*http.Request) bool
	left atomic.Int32 // requests that are not answered yet
}

func (s *stalling) RoundTrip(r *http.Request) (*http.Response, error) {
	if s.hit(r) && s.left.Add(-1) >= 0 {
		if !s.late {
			return nil, timeoutError{}
		}
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	return s.next.RoundTrip(r)
}

// timeoutError is the error of an http.Client whose limit is over.
type timeoutError struct{}

func (timeoutError) Error() string {
	return "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
}
func (timeoutError) Timeout() bool        { return true }
func (timeoutError) Is(target error) bool { return target == context.DeadlineExceeded }

// migrateStalled proves that a request without an answer is a failure and not a success: it is
// repeated, and if that does not help, the old version stays in status.storedVersions.
func (e *env) migrateStalled(t *testing.T) {
	patches := func(r *http.Request) bool {
		return r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/o1")
	}
	lists := func(r *http.Request) bool {
		return r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/crontabs")
	}
	for name, tc := range map[string]struct {
		hit   func(*http.Request) bool
		times int32
		want  string // of the error
	}{
		"patch, once":  {patches, 1, ""},
		"patch":        {patches, 100, "1 of 3 objects could not be rewritten"},
		"list, twice":  {lists, 2, ""},
		"list":         {lists, 100, "deadline exceeded"},
		"drop of v1b1": {func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/status") }, 100, "deadline exceeded"},
	} {
		d := e.stored(t, 3)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &stalling{hit: tc.hit, late: tc.times == 1}
			s.left.Store(tc.times)
			cfg := rest.CopyConfig(e.cfg)
			if s.late {
				cfg.Timeout = 3 * time.Second
			}
			cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { s.next = next; return s })
			r, err := migrateAs(t, cfg, migrate.Options{}).Run(t.Context(), d.Name)
			if s.left.Load() == tc.times {
				t.Error("no request has stalled")
			}
			if tc.want == "" {
				if err != nil || r.Objects != 3 || r.Rewritten != 3 || e.count(t, d, "v1") != 3 {
					t.Errorf("%+v, %v; %d objects are stored in v1", r, err, e.count(t, d, "v1"))
				}
				e.wantStoredVersions(t, d, "v1")
				return
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%+v, %v, want %q", r, err, tc.want)
			}
			e.wantStoredVersions(t, d, "v1beta1", "v1")
		})
	}
}
