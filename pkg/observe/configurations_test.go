// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// TestConfigurations proves that schedulers' configurations are found on each page of the list of ConfigMaps, and that an overview, which "status --watch"
// takes each 2 s, does not read the ConfigMaps of the cluster at all.
func TestConfigurations(t *testing.T) {
	var lists atomic.Int32
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		body := `{"items":[]}`
		if strings.HasSuffix(r.URL.Path, "/configmaps") {
			lists.Add(1)
			query := r.URL.Query()
			if query.Get("limit") == "" {
				t.Errorf("a list without a limit: %s", r.URL)
			}
			page, next := query.Get("continue"), ""
			if page == "" {
				next = "2"
			}
			body = fmt.Sprintf(`{"metadata":{"continue":%q},"items":[{"metadata":{"namespace":"a","name":"scheduler%s"},"data":{"c":"kind: KubeSchedulerConfiguration"}},
				{"metadata":{"namespace":"a","name":"quotes"},"data":{"c":"text: kind KubeSchedulerConfiguration"}}]}`, next, page)
		}
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(api.Close)
	for _, brief := range []bool{true, false} {
		lists.Store(0)
		s, err := Collect(t.Context(), Target{Config: &rest.Config{Host: api.URL}, Limit: 10 * time.Second, Brief: brief})
		if err != nil {
			t.Fatal(err)
		}
		want := map[bool]int{true: 0, false: 2}[brief]
		if got := len(s.Configurations.Value); got != want || int(lists.Load()) != want || s.Configurations.Err != nil {
			t.Errorf("brief %v: %d configurations from %d lists, %v", brief, got, lists.Load(), s.Configurations.Err)
		}
	}
}
