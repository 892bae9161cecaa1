// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/pkg/check"
	"github.com/fairlead-dev/fairlead/pkg/check/incluster"
)

// TestCrashes proves that of many containers that end again and again one log is read for each image and architecture, of a few at most, that it counts
// for all of them, and that none is read while no agent could carry the call.
func TestCrashes(t *testing.T) {
	const crashing = 100
	for name, tc := range map[string]struct {
		images int
		ready  bool
		direct bool
		want   int
	}{
		"one image, two architectures": {1, true, false, 2},
		"an image each":                {crashing, true, false, maxCrashes},
		"no agent is ready":            {1, false, false, 0},
		"without a tunnel":             {1, false, true, 2},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			var asked []string
			api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				if strings.HasSuffix(r.URL.Path, "/log") {
					asked = append(asked, r.URL.Path)
				}
				_, _ = fmt.Fprintln(w, "exec format error")
			}))
			defer api.Close()
			c := collectorOf(t, api.URL)
			c.s.Crashes = map[string]string{}
			if tc.direct {
				c.s.APIServers = Known(map[string][]string{"cp": {"kube-apiserver"}})
			} else {
				c.s.APIServers = Known(map[string][]string{"cp": {"kube-apiserver", "--egress-selector-config-file=/e.yaml"}})
			}
			for i := range crashing {
				p := pod("kube-system", fmt.Sprintf("x/konnectivity-agent:v%d", i%tc.images), nil, "konnectivity-agent")
				p.Name, p.Spec.NodeName = fmt.Sprintf("agent-%d", i), fmt.Sprintf("n%d", i)
				p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", RestartCount: 3, Ready: tc.ready && i == 0}}
				c.s.Programs.Value = append(c.s.Programs.Value, programsOf([]corev1.Pod{p}, incluster.Names{})...)
				c.s.Nodes.Value = append(c.s.Nodes.Value, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: p.Spec.NodeName},
					Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{Architecture: []string{"amd64", "arm64"}[i%2]}}})
			}
			c.round(t.Context(), c.probes()...)
			if len(asked) != tc.want {
				t.Errorf("%d logs are read, want %d", len(asked), tc.want)
			}
			last := Of(c.s.Programs.Value, check.RoleAgent)[crashing-1]
			if want := tc.want == 2; want != (c.s.Crashes[last.Key()] != "") {
				t.Errorf("the last words of %s are %q", last.Name, c.s.Crashes[last.Key()])
			}
		})
	}
}

// TestLogOfTheContainer proves that the last lines of a container that ends again and again are read from that container, where its Pod has
// others: the API server refuses to choose one.
func TestLogOfTheContainer(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch container := r.URL.Query().Get("container"); container {
		case "":
			http.Error(w, "a container name must be specified", http.StatusBadRequest)
		default:
			_, _ = fmt.Fprintf(w, "last words of %s\n", container)
		}
	}))
	t.Cleanup(api.Close)
	p := pod("kube-system", "x/kube-apiserver:v1", nil, "kube-apiserver")
	p.Spec.Containers[0].Name = "kube-apiserver"
	p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "tunnel", Image: "x/proxy-server:v1", Command: []string{"/proxy-server"}})
	c := collectorOf(t, api.URL)
	c.s.Crashes = map[string]string{}
	programs := programsOf([]corev1.Pod{p}, incluster.Names{})
	if len(programs) != 2 {
		t.Fatalf("got %d programs", len(programs))
	}
	for _, p := range programs {
		c.lastWords(t.Context(), []Program{p})
		if got, want := c.s.Crashes[p.Key()], "last words of "+p.Container.Name; got != want {
			t.Errorf("%s: got %q, want %q", p.Role, got, want)
		}
	}
}
