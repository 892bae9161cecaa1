// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	tunnelv1alpha1 "github.com/fairlead-dev/fairlead/pkg/apis/tunnel/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/check"
	"github.com/fairlead-dev/fairlead/pkg/check/incluster"
)

// rightFor is the right that a request needs in the notation of ReadRights, "" for paths that are no resources.
func rightFor(r *http.Request) string {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	group := ""
	switch {
	case parts[0] == "api" && len(parts) > 2:
		parts = parts[2:]
	case parts[0] == "apis" && len(parts) > 3:
		group, parts = "."+parts[1], parts[3:]
	default:
		return ""
	}
	if parts[0] == "namespaces" && len(parts) > 2 { // in one, not of one
		parts = parts[2:]
	}
	resource, verb := parts[0]+group, "list"
	if len(parts) > 1 {
		verb = "get"
	}
	if len(parts) > 2 {
		resource = parts[0] + group + "/" + parts[2]
	}
	if r.Method == http.MethodPost {
		verb = "create"
	}
	return verb + " " + resource
}

// TestServerIdentity proves that a server is asked for by its ServiceAccount or by the bundle's user, and that of a kubeconfig elsewhere the user is an
// assumption.
func TestServerIdentity(t *testing.T) {
	b := (&v1alpha1.Bundle{}).Defaulted()
	for name, tc := range map[string]struct {
		image, kubeconfig, want string
		assumed                 bool
	}{
		"ours":           {"mirror.example/konnectivity-server:v0.1.0", b.Konnectivity.Server.Kubeconfig, "system:konnectivity-server", false},
		"ours, by hand":  {"mirror.example/konnectivity-server:v0.1.0", "/etc/kubernetes/admin.conf", "system:konnectivity-server", true},
		"upstream":       {"x/proxy-server:v1", b.Konnectivity.Server.Kubeconfig, "system:konnectivity-server", true},
		"ServiceAccount": {"x/proxy-server:v1", "", "system:serviceaccount:tunnels:server", false},
	} {
		p := pod("tunnels", tc.image, nil, "proxy-server", "--kubeconfig="+tc.kubeconfig)
		p.Spec.ServiceAccountName = "server"
		user, _, assumed := serverIdentity(programsOf([]corev1.Pod{p}, incluster.NamesOf(b))[0], b)
		if user != tc.want || assumed != tc.assumed {
			t.Errorf("%s: %s, assumed %v", name, user, assumed)
		}
	}
}

// TestReadRights proves that the rights that FL-API-009 asks for are those of the requests that a complete check makes: no more, and no fewer.
func TestReadRights(t *testing.T) {
	var mu sync.Mutex
	used := map[string]bool{}
	server := pod("kube-system", "x/konnectivity-server:v1", nil, "konnectivity-server", "--health-bind-address=127.0.0.1")
	agent := pod("kube-system", "x/konnectivity-agent:v1", nil, "konnectivity-agent")
	scheduler := pod("kube-system", "x/fairlead-scheduler:v1", map[string]string{"app.kubernetes.io/name": "my-scheduler", "component": "scheduler", "tier": "control-plane"}, "kube-scheduler", "--config=/x")
	for i, p := range []*corev1.Pod{&server, &agent, &scheduler} {
		p.Name = []string{"server", "agent", "scheduler"}[i]
	}
	agent.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", Ready: true}}
	scheduler.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", RestartCount: 3}}
	node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
	const hook = `{"items":[{"metadata":{"name":"v1.shop.example"},"spec":{"service":{"namespace":"shop","name":"hook"}}}]}`
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		used[rightFor(r)] = true
		mu.Unlock()
		var body any = json.RawMessage(`{"items":[]}`)
		switch {
		case strings.HasSuffix(r.URL.Path, "/api/v1/nodes"):
			body = corev1.NodeList{Items: []corev1.Node{node}}
		case r.URL.Path == "/api/v1/namespaces/kube-system/pods":
			body = corev1.PodList{Items: []corev1.Pod{server, agent, scheduler}}
		case strings.HasSuffix(r.URL.Path, "/apiservices"):
			body = json.RawMessage(hook)
		case strings.HasSuffix(r.URL.Path, "/endpointslices"):
			body = json.RawMessage(`{"items":[{"endpoints":[{"targetRef":{"kind":"Pod","name":"hook-1"}}]}]}`)
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(body)
	}))
	t.Cleanup(api.Close)
	if _, err := Collect(t.Context(), Target{Config: &rest.Config{Host: api.URL}, Limit: 10 * time.Second}); err != nil {
		t.Fatal(err)
	}
	delete(used, "get pods/portforward") // without it, the port-forward goes on with create
	// Everyone may ask for their own rights, and an error of the tunnel's API says itself which right is missing.
	for _, other := range []string{"", "create selfsubjectaccessreviews.authorization.k8s.io", "list tunnelagents." + tunnelv1alpha1.GroupName, "list tunnelservers." + tunnelv1alpha1.GroupName} {
		delete(used, other)
	}
	for right := range used {
		if !slices.Contains(ReadRights, right) {
			t.Errorf("a check needs the right %q, which is not asked for", right)
		}
	}
	for _, right := range ReadRights {
		if !used[right] {
			t.Errorf("no check needs the right %q", right)
		}
	}
}

// TestSlowReviews proves that an API server that takes its time for each answer still answers all reviews within the limit, and that the answers
// are those to their questions.
func TestSlowReviews(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(500 * time.Millisecond)
		var review struct {
			Spec struct {
				ResourceAttributes struct{ Resource string }
			}
		}
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"status": map[string]any{"allowed": review.Spec.ResourceAttributes.Resource != "nodes"}})
	}))
	t.Cleanup(api.Close)
	c := collectorOf(t, api.URL)
	c.Limit = 10 * time.Second // one after the other, they take twice as long
	c.cfg.ContentType = "application/json"
	var err error
	if c.client, err = kubernetes.NewForConfig(c.cfg); err != nil {
		t.Fatal(err)
	}
	scheduler := pod("kube-system", "x/kube-scheduler:v1", nil, "kube-scheduler", "--config=/x")
	c.s.Programs.Value = programsOf([]corev1.Pod{scheduler}, c.s.Names)
	c.s.Programs.Value[0].Role = check.RoleScheduler
	c.round(t.Context(), into(&c.s.Denied, c.denied), into(&c.s.Reviews, c.reviews))
	if want := []string{"list nodes", "get nodes/proxy"}; c.s.Denied.Err != nil || !slices.Equal(c.s.Denied.Value, want) {
		t.Errorf("denied are %q (%v), want %q", c.s.Denied.Value, c.s.Denied.Err, want)
	}
	rights, err := c.schedulerRights(c.s.Programs.Value[0])
	if err != nil || c.s.Reviews.Err != nil || len(c.s.Reviews.Value) != len(rights) {
		t.Fatalf("got %d reviews: %v", len(c.s.Reviews.Value), errors.Join(err, c.s.Reviews.Err))
	}
	for i, r := range c.s.Reviews.Value {
		if r.Right != rights[i] || r.Allowed != !strings.Contains(r.Right, " nodes") {
			t.Errorf("got %+v", r)
		}
	}
}
