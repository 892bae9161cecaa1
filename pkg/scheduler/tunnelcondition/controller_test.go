package tunnelcondition

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"

	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
	"github.com/fairlead-dev/fairlead/pkg/scheduler/pluginargs"
)

const bound = 20 * time.Second

// TestController follows agents that come, get ready, lose readiness and go, on a real API server.
func TestController(t *testing.T) {
	cp := daemontest.StartControlPlane(t, "")
	agents := labels.SelectorFromSet(labels.Set{"k8s-app": "konnectivity-agent"})
	pods, err := Pods(cp.Client, "default", agents)
	if err != nil {
		t.Fatal(err)
	}
	controller, err := New(cp.Client, pods)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- controller.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})

	// Without controllers nobody else makes it.
	if _, err := cp.Client.CoreV1().ServiceAccounts("default").Create(t.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "none"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b"} {
		if _, err := cp.Client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	want(t, cp.Client, "a", corev1.ConditionFalse, ReasonNoAgent)
	want(t, cp.Client, "b", corev1.ConditionFalse, ReasonNoAgent)

	agent(t, cp.Client, "agent", "a", "konnectivity-agent")
	agent(t, cp.Client, "other", "b", "something-else")
	setReady(t, cp.Client, "agent", corev1.ConditionTrue)
	setReady(t, cp.Client, "other", corev1.ConditionTrue)
	want(t, cp.Client, "a", corev1.ConditionTrue, ReasonReady)
	want(t, cp.Client, "b", corev1.ConditionFalse, ReasonNoAgent)

	setReady(t, cp.Client, "agent", corev1.ConditionFalse)
	want(t, cp.Client, "a", corev1.ConditionFalse, ReasonNoAgent)
	setReady(t, cp.Client, "agent", corev1.ConditionTrue)
	want(t, cp.Client, "a", corev1.ConditionTrue, ReasonReady)

	agent(t, cp.Client, "second", "a", "konnectivity-agent")
	setReady(t, cp.Client, "second", corev1.ConditionTrue)
	remove(t, cp.Client, "agent")
	time.Sleep(300 * time.Millisecond)
	want(t, cp.Client, "a", corev1.ConditionTrue, ReasonReady)
	remove(t, cp.Client, "second")
	want(t, cp.Client, "a", corev1.ConditionFalse, ReasonNoAgent)

	node, err := cp.Client.CoreV1().Nodes().Get(t.Context(), "a", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if c := condition(node, corev1.NodeReady); c == nil || c.Status != corev1.ConditionTrue {
		t.Errorf("another condition was lost: %v", node.Status.Conditions)
	}
}

func condition(node *corev1.Node, kind corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == kind {
			return &node.Status.Conditions[i]
		}
	}
	return nil
}

func want(t *testing.T, client kubernetes.Interface, name string, status corev1.ConditionStatus, reason string) {
	t.Helper()
	daemontest.Eventually(t, bound, func() error {
		node, err := client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		c := condition(node, pluginargs.TunnelReadyCondition)
		if c == nil || c.Status != status || c.Reason != reason || c.LastTransitionTime.IsZero() {
			return fmt.Errorf("node %s has condition %+v, want %s (%s)", name, c, status, reason)
		}
		return nil
	})
}

func agent(t *testing.T, client kubernetes.Interface, name, node, label string) {
	t.Helper()
	_, err := client.CoreV1().Pods("default").Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"k8s-app": label}},
		Spec: corev1.PodSpec{NodeName: node, AutomountServiceAccountToken: new(bool), ServiceAccountName: "none",
			Containers: []corev1.Container{{Name: "agent", Image: "agent"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

func setReady(t *testing.T, client kubernetes.Interface, name string, status corev1.ConditionStatus) {
	t.Helper()
	pod, err := client.CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}
	if _, err := client.CoreV1().Pods("default").UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, client kubernetes.Interface, name string) {
	t.Helper()
	if err := client.CoreV1().Pods("default").Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
		t.Fatal(err)
	}
}
