// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"errors"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
)

func serverPod(node string, started time.Time, ready corev1.ConditionStatus) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "konnectivity-server-" + node, Namespace: "kube-system", Labels: map[string]string{"k8s-app": "konnectivity-server"}},
		Spec:       corev1.PodSpec{NodeName: node},
		Status: corev1.PodStatus{
			Conditions:        []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}},
			ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(started)}}}},
		},
	}
}

// After a restart the API server returns outdated status for a while, which
// must not count as an answer. Nodes that were not restarted are trusted.
func TestWhatIsFromBeforeARestartDoesNotCount(t *testing.T) {
	p := newTestPlan(t, "")
	now := time.Now()
	before := now.Add(-time.Minute)
	first, second, third := p.nodes()[0].name, p.nodes()[1].name, p.nodes()[2].name
	p.restarted = map[string]time.Time{first: now, second: now}
	client := fake.NewClientset(
		serverPod(first, before, corev1.ConditionTrue), serverPod(second, now.Truncate(time.Second), corev1.ConditionTrue), serverPod(third, before, corev1.ConditionTrue))
	w, err := p.servers(t.Context(), client)
	if err != nil || w.Ready != 2 || w.Want != 3 || w.ok() {
		t.Errorf("servers = %+v, %v; want 2 of 3", w, err)
	}
	for name, want := range map[string]bool{first: false, third: true} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.NewTime(before)}}}}
		if p.nodeReady(n) != want {
			t.Errorf("nodeReady of %s = %v", name, !want)
		}
	}
}

// The reason why a Pod does not start is reported while waiting for it, and at
// the end.
func TestWhyAPodIsNotReady(t *testing.T) {
	p := newTestPlan(t, "")
	pod := serverPod("x", time.Now(), corev1.ConditionFalse)
	pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "no such host"}}
	_, err := p.settled(t.Context(), fake.NewClientset(pod), p.servers)
	var wait waitError
	if !errors.As(err, &wait) || !strings.Contains(err.Error(), "0 of 3 konnectivity-server ready") || !strings.Contains(err.Error(), "ErrImagePull: no such host") {
		t.Errorf("settled = %v", err)
	}
}

// The agents of a TunnelPool do not count as those of the bundle, and do not explain why these are not ready.
func TestAgentsOfPoolsDoNotCount(t *testing.T) {
	p := newTestPlan(t, "")
	pod := func(name string) *corev1.Pod {
		pod := serverPod("x", time.Now(), corev1.ConditionTrue)
		pod.Name, pod.Labels = name, map[string]string{"k8s-app": "konnectivity-agent"}
		return pod
	}
	ofPool := pod("konnectivity-agent-pool-edge-1")
	ofPool.Labels[konnectivity.PoolLabel] = "edge"
	ofPool.Status.ContainerStatuses[0].State.Waiting = &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "no such host"}
	agents := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "konnectivity-agent", Namespace: "kube-system"}, Status: appsv1.DaemonSetStatus{DesiredNumberScheduled: 2}}
	_, err := p.settled(t.Context(), fake.NewClientset(agents, pod("konnectivity-agent-1"), ofPool), p.agents)
	var wait waitError
	if !errors.As(err, &wait) || !strings.Contains(err.Error(), "1 of 2 konnectivity-agent ready") || strings.Contains(err.Error(), "ErrImagePull") {
		t.Errorf("settled = %v", err)
	}
}
