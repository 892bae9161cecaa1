// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
)

// leases are an API server with so many Leases that are valid, and one that is not, and
// returns a kubeconfig for it.
func leases(t *testing.T, valid int) string {
	t.Helper()
	const lease = `{"metadata":{"name":"l%d"},"spec":{"leaseDurationSeconds":30,"renewTime":%q}}`
	items := fmt.Sprintf(lease, 0, time.Now().Add(-time.Hour).Format(time.RFC3339Nano))
	for i := range valid {
		items += "," + fmt.Sprintf(lease, i+1, time.Now().Add(time.Hour).Format(time.RFC3339Nano))
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch q := r.URL.Query(); {
		case q.Get("labelSelector") != "a=b" || r.URL.Path != "/apis/coordination.k8s.io/v1/namespaces/ns/leases":
			t.Errorf("%s %s", r.Method, r.URL)
		case q.Get("watch") != "":
			<-r.Context().Done()
		default:
			_, _ = fmt.Fprintf(w, `{"metadata":{"resourceVersion":"1"},"items":[%s]}`, items)
		}
	}))
	t.Cleanup(srv.Close)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{"current-context":"c","contexts":[{"name":"c","context":{"cluster":"k","user":"u"}}],
"clusters":[{"name":"k","cluster":{"server":%q}}],"users":[{"name":"u","user":{"token":"me"}}]}`, srv.URL)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestServerCountSource: with --count-server-leases, valid Leases say how many servers
// there are, whatever a server says; with --server-count-source=max the greater number
// counts, and without Leases what a server says. Upstream's agent counts the same way.
func TestServerCountSource(t *testing.T) {
	for name, c := range map[string]struct {
		source string
		leases int
		want   map[int]int // by what a server says
	}{
		"default":             {"default", 3, map[int]int{0: 3, 2: 3, 5: 3}},
		"empty":               {"", 3, map[int]int{0: 3, 2: 3, 5: 3}},
		"max":                 {"max", 3, map[int]int{0: 3, 2: 3, 5: 5}},
		"default, no servers": {"default", 0, map[int]int{0: 1, 1: 1, 5: 1}},
		"max, no servers":     {"max", 0, map[int]int{0: 1, 1: 1, 5: 5}},
	} {
		t.Run(name, func(t *testing.T) {
			o := parse(t, "--count-server-leases", "--lease-namespace=ns", "--lease-label=a=b", "--server-count-source="+c.source, "--kubeconfig="+leases(t, c.leases))
			if err := o.Validate(); err != nil {
				t.Fatal(err)
			}
			m := agent.NewMetrics()
			cfg, err := o.config(t.Context(), m)
			if err != nil {
				t.Fatal(err)
			}
			for end := time.Now().Add(time.Minute); cfg.ServerCount(0) != max(c.leases, 1) && time.Now().Before(end); {
				time.Sleep(time.Millisecond) // until the Leases are listed
			}
			for said, want := range c.want {
				if got := cfg.ServerCount(said); got != want {
					t.Errorf("%d Leases, and a server says %d: %d are counted, want %d", c.leases, said, got, want)
				}
			}
		})
	}
}

// TestCountWithoutLeases: whatever --server-count-source says, without
// --count-server-leases it is the server that counts.
func TestCountWithoutLeases(t *testing.T) {
	for _, source := range []string{"default", "", "max"} {
		cfg, err := parse(t, "--server-count-source="+source).config(t.Context(), agent.NewMetrics())
		if err != nil {
			t.Fatal(err)
		}
		if cfg.ServerCount != nil {
			t.Errorf("%q: counts by itself", source)
		}
	}
}
