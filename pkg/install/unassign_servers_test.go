// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/progress"
)

// assigner is an API server that goes on applying a deleted policy to some Pods.
type assigner struct {
	*httptest.Server
	left, asked atomic.Int32
	slices      discoveryv1.EndpointSliceList
}

func newAssigner(t *testing.T, assigns int32) *assigner {
	t.Helper()
	a := &assigner{}
	a.left.Store(assigns)
	a.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		var answer any
		switch {
		case strings.HasSuffix(r.URL.Path, "/endpointslices"):
			answer = a.slices
		case strings.HasSuffix(r.URL.Path, "/namespaces"):
			answer = corev1.NamespaceList{Items: []corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "n"}}}}
		default:
			a.asked.Add(1)
			pod := corev1.Pod{Spec: corev1.PodSpec{SchedulerName: "default-scheduler"}}
			if a.left.Add(-1) >= 0 {
				pod.Spec.SchedulerName = "my-scheduler"
			}
			answer = pod
		}
		_ = json.NewEncoder(w).Encode(answer)
	}))
	t.Cleanup(a.Close)
	return a
}

// lists makes a server of the cluster known.
func (a *assigner) lists(t *testing.T, server *httptest.Server) {
	t.Helper()
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	at := netip.MustParseAddrPort(u.Host)
	a.slices.Items = append(a.slices.Items, discoveryv1.EndpointSlice{
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{at.Addr().String()}}}, Ports: []discoveryv1.EndpointPort{{Port: ptr.To(int32(at.Port()))}},
	})
}

// TestUnassignedOnEveryAPIServer: the scheduler stays until none of the cluster's API servers gives
// Pods to it any more. For one that cannot be asked there is a fixed wait.
func TestUnassignedOnEveryAPIServer(t *testing.T) {
	const late = 8
	first, second, third := newAssigner(t, 0), newAssigner(t, late), newAssigner(t, late)
	gone := httptest.NewTLSServer(nil)
	for _, s := range []*httptest.Server{first.Server, second.Server, third.Server} {
		first.lists(t, s)
	}
	policy := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy", "metadata": map[string]any{"name": "assign"},
		"spec": map[string]any{
			"matchConstraints": map[string]any{},
			"mutations":        []any{map[string]any{"jsonPatch": map[string]any{"expression": `[JSONPatch{op: "add", path: "/spec/schedulerName", value: "my-scheduler"}]`}}},
		},
	}}
	cfg := &rest.Config{Host: first.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	kube, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	c := &client{kube: kube, config: cfg, timing: quick}
	c.timing.direct = time.Minute
	wait := func(blind time.Duration) time.Duration {
		t.Helper()
		c.timing.unassignedBlind = blind
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		begin, result := time.Now(), &Result{}
		changes := []change{{Ref: RefOf(policy), action: Deleted, live: policy}}
		if err := c.awaitUnassigned(ctx, changes, result, progress.Silent); err != nil || len(result.Warnings) > 0 {
			t.Fatalf("%v, %v", err, result.Warnings)
		}
		return time.Since(begin)
	}
	wait(time.Hour) // so that it fails if it waits as if a server could not be asked
	for name, s := range map[string]*assigner{"second": second, "third": third} {
		if n := s.asked.Load(); n < late+unassignedAnswers {
			t.Errorf("the %s server was asked %d times, want at least %d", name, n, late+unassignedAnswers)
		}
	}
	first.lists(t, gone)
	gone.Close()
	const blind = 200 * time.Millisecond
	if took := wait(blind); took < blind {
		t.Errorf("it took %v, though a server could not be asked", took)
	}
}
