// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/check"
)

// lookAround collects from an API server that answers these paths with these objects, all other lists with nothing, and each kubelet with ok. It
// returns how many kubelets were asked.
func lookAround(t *testing.T, brief bool, answers map[string]any) (*Snapshot, int) {
	t.Helper()
	var kubelets atomic.Int64
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/proxy/healthz") {
			kubelets.Add(1)
			_, _ = w.Write([]byte("ok"))
			return
		}
		body, ok := answers[r.URL.Path]
		if !ok {
			body = json.RawMessage(`{"items":[]}`)
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(body)
	}))
	t.Cleanup(api.Close)
	s, err := Collect(t.Context(), Target{Config: &rest.Config{Host: api.URL}, Brief: brief, Limit: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return s, int(kubelets.Load())
}

func readyNodes(names ...string) corev1.NodeList {
	var out corev1.NodeList
	for _, name := range names {
		out.Items = append(out.Items, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}})
	}
	return out
}

// TestBriefKubelets proves that an overview of a cluster without agents asks a few kubelets, and that of a cluster with agents none.
func TestBriefKubelets(t *testing.T) {
	const nodes, agents = "/api/v1/nodes", "/apis/apps/v1/daemonsets"
	names := []string{"a", "b", "c", "d", "e"}
	s, asked := lookAround(t, true, map[string]any{nodes: readyNodes(names...)})
	if answer, err := s.KubeletsAnswer(); !answer || err != nil || asked == 0 || asked > briefKubelets {
		t.Errorf("%d asked, answer %v, %v", asked, answer, err)
	}
	template := corev1.PodTemplateSpec{Spec: pod("", "x/konnectivity-agent:v1", nil, "konnectivity-agent").Spec}
	_, asked = lookAround(t, true, map[string]any{nodes: readyNodes(names...), agents: appsv1.DaemonSetList{Items: []appsv1.DaemonSet{{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "konnectivity-agent"}, Spec: appsv1.DaemonSetSpec{Template: template}}}}})
	if asked > 0 {
		t.Errorf("%d asked with agents", asked)
	}
}

// TestHosted proves that the tunnel of a control plane that runs as Pods for another cluster is not taken for this cluster's, and is still among
// the programs.
func TestHosted(t *testing.T) {
	plane := pod("tenant", "registry.k8s.io/kube-apiserver:v1.36.3", nil, "kube-apiserver", "--egress-selector-config-file=/x")
	sidecar := pod("tenant", "x/proxy-server:v1", nil, "/proxy-server", "--uds-name=/x").Spec.Containers[0]
	sidecar.Name = "tunnel"
	plane.Spec.Containers = append(plane.Spec.Containers, sidecar)
	deployment := appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "plane"}, Spec: appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{Spec: plane.Spec}}}
	s, _ := lookAround(t, false, map[string]any{
		"/apis/apps/v1/deployments":      appsv1.DeploymentList{Items: []appsv1.Deployment{deployment}},
		"/api/v1/namespaces/tenant/pods": corev1.PodList{Items: []corev1.Pod{plane}},
		"/api/v1/nodes":                  readyNodes("a"),
	})
	if len(s.Programs.Value) != 2 {
		t.Errorf("programs %+v, %v", s.Programs.Value, s.Programs.Err)
	}
	if _, _, err := s.Tunnel(); !check.IsSkip(err) {
		t.Errorf("a tunnel of this cluster: %v", err)
	}
	if w := s.Workloads(check.RoleServer); len(w) > 0 || len(s.ServerMetrics) > 0 {
		t.Errorf("servers of this cluster: %+v, %+v", w, s.ServerMetrics)
	}
}

// TestLeasesByFlags proves that the Leases of servers are read from the namespace that their flag names.
func TestLeasesByFlags(t *testing.T) {
	server := pod("kube-system", "x/proxy-server:v1", nil, "/proxy-server", "--enable-lease-controller", "--lease-namespace=tunnels")
	lease := coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "tunnels", Name: "one"}}
	for _, brief := range []bool{false, true} {
		s, _ := lookAround(t, brief, map[string]any{
			"/api/v1/namespaces/kube-system/pods":                      corev1.PodList{Items: []corev1.Pod{server}},
			"/apis/coordination.k8s.io/v1/namespaces/tunnels/leases":   coordinationv1.LeaseList{Items: []coordinationv1.Lease{lease}},
			"/apis/coordination.k8s.io/v1/namespaces/elsewhere/leases": coordinationv1.LeaseList{Items: []coordinationv1.Lease{lease, lease}},
		})
		if s.Leases.Err != nil || len(s.Leases.Value) != 1 || s.Leases.Read.IsZero() {
			t.Errorf("brief %v: %+v", brief, s.Leases)
		}
	}
}

// TestTargetPorts proves that the ports of Pods behind each port of a Service are known, and their names.
func TestTargetPorts(t *testing.T) {
	backend := pod("shop", "x/hook:v1", nil, "hook")
	backend.Name, backend.Labels = "hook-1", map[string]string{"app": "hook"}
	backend.Spec.Containers[0].Ports = []corev1.ContainerPort{{Name: "tls", ContainerPort: 8443}, {Name: "metrics", ContainerPort: 9090}}
	s, _ := lookAround(t, false, map[string]any{
		"/apis/apiregistration.k8s.io/v1/apiservices": json.RawMessage(`{"items":[{"metadata":{"name":"v1.shop.example"},"spec":{"service":{"namespace":"shop","name":"hook"}}}]}`),
		"/api/v1/namespaces/shop/services/hook": corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{
			{Name: "https", Port: 443, TargetPort: intstr.FromString("tls")}, {Name: "metrics", Port: 9090}}}},
		"/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices": discoveryv1.EndpointSliceList{Items: []discoveryv1.EndpointSlice{{
			Ports:     []discoveryv1.EndpointPort{{Name: ptr.To("https"), Port: ptr.To(int32(8443))}, {Name: ptr.To("metrics"), Port: ptr.To(int32(9090))}},
			Endpoints: []discoveryv1.Endpoint{{TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: "hook-1"}}}}}},
		"/api/v1/namespaces/shop/pods/hook-1": backend,
	})
	got := s.Services.Value[types.NamespacedName{Namespace: "shop", Name: "hook"}]
	want := ServiceState{Exists: true, Ports: []int32{443, 9090}, Targets: map[int32][]int32{443: {8443}, 9090: {9090}}, Ready: 1,
		PodLabels: map[string]string{"app": "hook"}, PodPorts: map[string]int32{"tls": 8443, "metrics": 9090}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%v (-want +got):\n%s", s.Services.Err, diff)
	}
}
