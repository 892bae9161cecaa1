// SPDX-License-Identifier: Apache-2.0

package incluster

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/check"
)

// names are those of the default bundle.
func names() Names {
	b, err := bundle.Load(nil)
	if err != nil {
		panic(err)
	}
	return NamesOf(b)
}

var (
	spaceName  = names().Namespace
	secondName = names().Scheduler
	agentsName = names().Agents
)

func schedulerPod(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: spaceName, Labels: map[string]string{"component": "scheduler", "tier": "control-plane", "version": "second", "app.kubernetes.io/name": secondName}}}
}

func agentPod(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: spaceName, Labels: map[string]string{"k8s-app": agentsName}}}
}

func deployment(name string, replicas int32, labels map[string]string) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: spaceName},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}},
		},
	}
}

// reconcile creates and deletes the pods of a Deployment or DaemonSet, as kube-controller-manager would.
func reconcile(client *fake.Clientset, pod func(string) *corev1.Pod) {
	set := func(want int) {
		pods := client.CoreV1().Pods(spaceName)
		list, _ := pods.List(context.Background(), metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: pod("x").Labels})})
		for _, p := range list.Items {
			_ = pods.Delete(context.Background(), p.Name, metav1.DeleteOptions{})
		}
		for i := range want {
			_, _ = pods.Create(context.Background(), pod(pod("x").Labels["component"]+string(rune('a'+i))), metav1.CreateOptions{})
		}
	}
	client.PrependReactor("patch", "*", func(action k8stesting.Action) (bool, runtime.Object, error) {
		patch := string(action.(k8stesting.PatchAction).GetPatch())
		switch {
		case strings.Contains(patch, `"replicas":0`) || strings.Contains(patch, `:"true"`):
			go set(0)
		default:
			go set(2)
		}
		return false, nil, nil
	})
}

func TestStopAndStartScheduler(t *testing.T) {
	d := deployment(secondName, 2, schedulerPod("x").Labels)
	d.Status.ReadyReplicas = 2
	client := fake.NewClientset(d, schedulerPod("my-scheduler-a"), schedulerPod("my-scheduler-b"))
	reconcile(client, schedulerPod)
	p := NewParts(client, names())
	if err := p.StartScheduler(t.Context()); err != nil || replicas(t, client, secondName) != 2 {
		t.Errorf("starting what was never stopped must change nothing: %v", err)
	}
	for range 2 { // idempotent, and remembers the first size
		if err := p.StopScheduler(t.Context()); err != nil || replicas(t, client, secondName) != 0 {
			t.Fatalf("stop: %v", err)
		}
	}
	if err := p.StartScheduler(t.Context()); err != nil || replicas(t, client, secondName) != 2 {
		t.Errorf("start: %v, %d replicas", err, replicas(t, client, secondName))
	}
}

func replicas(t *testing.T, client *fake.Clientset, name string) int32 {
	t.Helper()
	d, err := client.AppsV1().Deployments(spaceName).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return *d.Spec.Replicas
}

func TestStopThatDoesNotEnd(t *testing.T) {
	client := fake.NewClientset(deployment(secondName, 1, schedulerPod("x").Labels), schedulerPod("stuck"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	looks := 0
	client.PrependReactor("list", "pods", func(k8stesting.Action) (bool, runtime.Object, error) {
		if looks++; looks == 2 {
			cancel() // the time is over after one look has found the Pod
		}
		return false, nil, nil
	})
	if err := NewParts(client, names()).StopScheduler(ctx); err == nil || !strings.Contains(err.Error(), "including stuck") {
		t.Errorf("got %v", err)
	}
}

func TestAgentsDaemonSet(t *testing.T) {
	ds := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: agentsName, Namespace: spaceName},
		Spec:       appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: agentPod("x").Labels}},
		Status:     appsv1.DaemonSetStatus{DesiredNumberScheduled: 2, NumberReady: 2},
	}
	ds.Spec.Template.Labels = agentPod("x").Labels
	ds.Spec.Template.Spec.NodeSelector = map[string]string{"kubernetes.io/os": "linux"}
	client := fake.NewClientset(ds, agentPod("a"))
	reconcile(client, agentPod)
	p := NewParts(client, names())
	selector := func() map[string]string {
		got, err := client.AppsV1().DaemonSets(spaceName).Get(t.Context(), agentsName, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return got.Spec.Template.Spec.NodeSelector
	}
	if err := p.StopAgents(t.Context()); err != nil || len(selector()) != 2 {
		t.Fatalf("stop: %v, selector %v", err, selector())
	}
	if err := p.StartAgents(t.Context()); err != nil || len(selector()) != 1 || selector()["kubernetes.io/os"] != "linux" {
		t.Errorf("start must leave the selector as it was: %v, %v", err, selector())
	}
}

// poolPod is of an agent of TunnelPool edge.
func poolPod(name string) *corev1.Pod {
	pod := agentPod(name)
	pod.Labels[konnectivity.PoolLabel] = "edge"
	return pod
}

// TestAgentsOfPools: the checks do not stop the bundle's agents while those of a TunnelPool keep the tunnel up.
func TestAgentsOfPools(t *testing.T) {
	d := deployment(agentsName, 3, agentPod("x").Labels)
	client := fake.NewClientset(d, agentPod("a"), poolPod("konnectivity-agent-pool-edge-1"))
	reconcile(client, agentPod)
	p := NewParts(client, names())
	if err := p.StopAgents(t.Context()); !check.IsSkip(err) || !strings.Contains(err.Error(), "TunnelPool edge") || replicas(t, client, agentsName) != 3 {
		t.Errorf("stop: %v, %d replicas", err, replicas(t, client, agentsName))
	}
	if err := client.CoreV1().Pods(spaceName).Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := p.waitGone(ctx, d.Spec.Template); err != nil {
		t.Errorf("the Pods of a pool count as the bundle's: %v", err)
	}
}

func TestAgentsDeployment(t *testing.T) {
	d := deployment(agentsName, 3, agentPod("x").Labels)
	d.Status.ReadyReplicas = 3
	client := fake.NewClientset(d, agentPod("a"))
	reconcile(client, agentPod)
	p := NewParts(client, names())
	if err := p.StopAgents(t.Context()); err != nil || replicas(t, client, agentsName) != 0 {
		t.Fatalf("stop: %v", err)
	}
	if err := p.StartAgents(t.Context()); err != nil || replicas(t, client, agentsName) != 3 {
		t.Errorf("start: %v", err)
	}
}

func TestKillLeaderDeletesItsPodAtOnce(t *testing.T) {
	client := fake.NewClientset(deployment(secondName, 2, schedulerPod("x").Labels), schedulerPod("my-scheduler-a"), schedulerPod("my-scheduler-b"))
	p := NewParts(client, names())
	if err := p.KillLeader(t.Context(), "my-scheduler-b_0b0b"); err != nil {
		t.Fatal(err)
	}
	for _, a := range client.Actions() {
		if del, ok := a.(k8stesting.DeleteActionImpl); ok && (del.Name != "my-scheduler-b" || ptr.Deref(del.DeleteOptions.GracePeriodSeconds, 30) != 0) {
			t.Errorf("deleted %s with %+v", del.Name, del.DeleteOptions)
		}
	}
	if err := p.KillLeader(t.Context(), "vm_1"); !apierrors.IsNotFound(err) || !strings.Contains(err.Error(), `holder "vm_1"`) {
		t.Errorf("got %v", err)
	}
	for holder, want := range map[string]bool{"my-scheduler-a_1": true, "my-scheduler-b_1": false, "control-plane_1": false} {
		if got, err := p.OwnsIdentity(t.Context(), holder); err != nil || got != want {
			t.Errorf("OwnsIdentity(%s) = %t, %v", holder, got, err)
		}
	}
}

func TestServerMetricsWithoutPods(t *testing.T) {
	if _, err := serverMetrics(t.Context(), nil, fake.NewClientset(), names()); err == nil || !strings.Contains(err.Error(), "k8s-app=konnectivity-server") {
		t.Errorf("got %v", err)
	}
}

func TestMetricsFrom(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/metrics" {
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = io.WriteString(w, "a 1\n")
	}))
	defer server.Close()
	if text, err := MetricsFrom(server.URL + "/metrics")(t.Context()); err != nil || string(text) != "a 1\n" {
		t.Errorf("got %q, %v", text, err)
	}
	if _, err := MetricsFrom(server.URL)(t.Context()); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := MetricsFrom(server.URL)(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
