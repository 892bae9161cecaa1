// SPDX-License-Identifier: Apache-2.0

package incluster

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/fairlead-dev/fairlead/pkg/check"
)

func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func agentSet(ready int32) *appsv1.DaemonSet {
	ds := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: agentsName, Namespace: spaceName},
		Spec:       appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: agentPod("x").Labels}},
		Status:     appsv1.DaemonSetStatus{DesiredNumberScheduled: 3, NumberReady: ready},
	}
	ds.Spec.Template.Labels = agentPod("x").Labels
	return ds
}

// TestKilledRunIsHealedByTheNext proves that the size of a stopped Deployment outlives the process that stopped it, and the DaemonSet's patch too.
func TestKilledRunIsHealedByTheNext(t *testing.T) {
	d := deployment(secondName, 3, schedulerPod("x").Labels)
	d.Status.ReadyReplicas = 3
	client := fake.NewClientset(d, agentSet(2))
	killed := NewParts(client, names())
	if err := errors.Join(killed.StopScheduler(soon(t)), killed.StopAgents(soon(t))); err != nil {
		t.Fatal(err)
	}
	// A second run that stops the Deployment again must not record zero as the replica count.
	if err := NewParts(client, names()).StopScheduler(soon(t)); err != nil {
		t.Fatal(err)
	}
	next := NewParts(client, names())
	found, err := next.Leftovers(t.Context())
	if err != nil || len(found) != 2 {
		t.Fatalf("found %+v, %v", found, err)
	}
	if want := `kubectl -n kube-system patch deployment my-scheduler --type merge -p '{"metadata":{"annotations":{"fairlead.dev/verify-replicas":null}},"spec":{"replicas":3}}'`; found[0].Remedy != want {
		t.Errorf("remedy %s", found[0].Remedy)
	}
	if want := `kubectl -n kube-system patch daemonset konnectivity-agent --type merge -p '{"spec":{"template":{"spec":{"nodeSelector":{"fairlead.dev/verify-stopped":null}}}}}'`; found[1].Remedy != want {
		t.Errorf("remedy %s", found[1].Remedy)
	}
	for _, l := range found {
		if err := l.Restore(soon(t)); err != nil {
			t.Errorf("%s: %v", l.What, err)
		}
	}
	if n := replicas(t, client, secondName); n != 3 {
		t.Errorf("%d replicas", n)
	}
	got, err := client.AppsV1().Deployments(spaceName).Get(t.Context(), secondName, metav1.GetOptions{})
	if err != nil || got.Annotations[AnnotationReplicas] != "" {
		t.Errorf("annotation left: %v, %v", got.Annotations, err)
	}
	for _, e := range got.ManagedFields {
		if e.Manager == fieldManager {
			t.Errorf("the check still owns fields: %s", e.FieldsV1)
		}
	}
	if left, err := next.Leftovers(t.Context()); err != nil || len(left) != 0 {
		t.Errorf("left %+v, %v", left, err)
	}
}

func TestReplicasAnnotation(t *testing.T) {
	tests := map[string]struct {
		replicas int32
		note     string
		want     int32
		left     int
		wantErr  string
	}{
		"stopped":            {0, "2", 2, 1, ""},
		"scaled by hand":     {1, "5", 1, 0, ""},
		"zero on purpose":    {0, "", 0, 0, ""},
		"runs":               {2, "", 2, 0, ""},
		"note is no number":  {0, "many", 0, 0, "scale it by hand and remove the annotation"},
		"note makes no size": {0, "0", 0, 0, "scale it by hand"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			d := deployment(secondName, tc.replicas, schedulerPod("x").Labels)
			d.Status.ReadyReplicas = 9
			if tc.note != "" {
				d.Annotations = map[string]string{AnnotationReplicas: tc.note}
			}
			client := fake.NewClientset(d)
			p := NewParts(client, names())
			left, lerr := p.Leftovers(t.Context())
			err := p.StartScheduler(soon(t))
			if (err == nil) != (tc.wantErr == "") || (lerr == nil) != (tc.wantErr == "") || (err != nil && !strings.Contains(err.Error(), tc.wantErr)) {
				t.Fatalf("got %v, %v", err, lerr)
			}
			if n := replicas(t, client, secondName); n != tc.want || len(left) != tc.left {
				t.Errorf("%d replicas, %d left over", n, len(left))
			}
		})
	}
}

// TestStartWaitsForAsManyAsWereReady proves that one broken node or replica does not make the start wait for ever.
func TestStartWaitsForAsManyAsWereReady(t *testing.T) {
	d := deployment(secondName, 3, schedulerPod("x").Labels)
	d.Status.ReadyReplicas = 2
	client := fake.NewClientset(d, agentSet(2)) // 2 of 3
	p := NewParts(client, names())
	if err := errors.Join(p.StopScheduler(soon(t)), p.StopAgents(soon(t))); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(p.StartScheduler(soon(t)), p.StartAgents(soon(t))); err != nil {
		t.Errorf("as many as before are ready: %v", err)
	}
	d.Status.ReadyReplicas = 1
	if _, err := client.AppsV1().Deployments(spaceName).UpdateStatus(t.Context(), d, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.AppsV1().DaemonSets(spaceName).UpdateStatus(t.Context(), agentSet(1), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	briefly := func() context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		t.Cleanup(cancel)
		return ctx
	}
	if err := p.StartScheduler(briefly()); err == nil || !strings.Contains(err.Error(), "1 of 2") {
		t.Errorf("fewer replicas than before are ready: %v", err)
	}
	if err := p.StartAgents(briefly()); err == nil || !strings.Contains(err.Error(), "1 agents are ready, want 2") {
		t.Errorf("fewer agents than before are ready: %v", err)
	}
}

// TestPodsThatNeverGo proves that the wait ignores pods that no longer run but stay in the API.
func TestPodsThatNeverGo(t *testing.T) {
	now := metav1.Now()
	onLostNode := func(pod *corev1.Pod) { pod.Spec.NodeName = "lost" }
	tests := map[string]struct {
		change func(*corev1.Pod)
		gone   bool
	}{
		"evicted":                    {func(pod *corev1.Pod) { pod.Status.Phase, pod.Status.Reason = corev1.PodFailed, "Evicted" }, true},
		"ended":                      {func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded }, true},
		"runs":                       {func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodRunning }, false},
		"runs on a lost node":        {onLostNode, false},
		"told to end on a lost node": {func(pod *corev1.Pod) { onLostNode(pod); pod.DeletionTimestamp, pod.Finalizers = &now, []string{"x/y"} }, true},
		"told to end": {func(pod *corev1.Pod) {
			pod.Spec.NodeName = "n"
			pod.DeletionTimestamp, pod.Finalizers = &now, []string{"x/y"}
		}, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			pod := schedulerPod("stays")
			tc.change(pod)
			node := func(name string, ready corev1.ConditionStatus) *corev1.Node {
				return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}}}
			}
			client := fake.NewClientset(deployment(secondName, 1, pod.Labels), pod, node("lost", corev1.ConditionUnknown), node("n", corev1.ConditionTrue))
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			if err := NewParts(client, names()).StopScheduler(ctx); (err == nil) != tc.gone {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestAnotherBundlesPodsAreNotWaitedFor(t *testing.T) {
	d := deployment(secondName, 1, map[string]string{"component": "scheduler", "tier": "control-plane"})
	d.Spec.Template.Labels = map[string]string{"component": "scheduler", "tier": "control-plane", "app.kubernetes.io/name": "first"}
	client := fake.NewClientset(d, schedulerPod("of-another"))
	if err := NewParts(client, names()).StopScheduler(soon(t)); err != nil {
		t.Error(err)
	}
}

// TestWhatCannotBeStoppedIsSkipped proves that schedulers as static Pods, and agents elsewhere, make the disruptive checks skip and not fail.
func TestWhatCannotBeStoppedIsSkipped(t *testing.T) {
	p := NewParts(fake.NewClientset(schedulerPod("my-scheduler-control-plane")), names())
	for name, stop := range map[string]func(context.Context) error{
		"scheduler": p.StopScheduler, "agents": p.StopAgents,
		"leader": func(ctx context.Context) error { return p.KillLeader(ctx, "control-plane_1") },
	} {
		if err := stop(t.Context()); !check.IsSkip(err) || !strings.Contains(err.Error(), "cannot be stopped through the API server") {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if err := errors.Join(p.StartScheduler(t.Context()), p.StartAgents(t.Context())); err != nil {
		t.Errorf("what was never stopped need not be started: %v", err)
	}
}

func TestKillLeaderOnTheHostNetwork(t *testing.T) {
	d := deployment(secondName, 2, schedulerPod("x").Labels)
	d.Spec.Template.Spec.HostNetwork = true
	a, b := schedulerPod("my-scheduler-a"), schedulerPod("my-scheduler-b")
	a.Spec.NodeName, b.Spec.NodeName = "node-a", "node-b"
	client := fake.NewClientset(d, a, b)
	p := NewParts(client, names())
	if err := p.KillLeader(t.Context(), "node-b_1"); err != nil {
		t.Fatal(err)
	}
	left, err := client.CoreV1().Pods(spaceName).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(left.Items) != 1 || left.Items[0].Name != a.Name {
		t.Errorf("left %v, %v", left.Items, err)
	}
	if err := p.KillLeader(t.Context(), "elsewhere_1"); !check.IsSkip(err) {
		t.Errorf("got %v", err)
	}
}
