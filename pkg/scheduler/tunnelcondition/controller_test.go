// SPDX-License-Identifier: Apache-2.0

package tunnelcondition

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
	"github.com/fairlead-dev/fairlead/pkg/scheduler/pluginargs"
)

const bound = time.Minute

// TestController follows agents that come, get ready, lose readiness and go, on a real API server and with the rights that
// a bundle renders.
func TestController(t *testing.T) {
	cp := daemontest.StartControlPlane(t)
	own := asRendered(t, cp)
	controller := run(t, own, time.Now)
	daemontest.Eventually(t, bound, controller.ready)

	// This control plane runs no controllers, so the test creates the ServiceAccount.
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

	mayNot(t, own)

	setReady(t, cp.Client, "agent", corev1.ConditionFalse)
	want(t, cp.Client, "a", corev1.ConditionFalse, ReasonNoAgent)
	setReady(t, cp.Client, "agent", corev1.ConditionTrue)
	want(t, cp.Client, "a", corev1.ConditionTrue, ReasonReady)

	agent(t, cp.Client, "second", "a", "konnectivity-agent")
	setReady(t, cp.Client, "second", corev1.ConditionTrue)
	remove(t, cp.Client, "agent")
	time.Sleep(300 * time.Millisecond) // nothing may change
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

// controllerOf makes a controller for the agents of namespace default.
func controllerOf(t *testing.T, client kubernetes.Interface) *Controller {
	t.Helper()
	pods, err := Pods(client, "default", labels.SelectorFromSet(labels.Set{"k8s-app": "konnectivity-agent"}))
	if err != nil {
		t.Fatal(err)
	}
	controller, err := New(client, pods)
	if err != nil {
		t.Fatal(err)
	}
	return controller
}

// run runs a controller for the agents of namespace default until the test ends.
func run(t *testing.T, client kubernetes.Interface, now func() time.Time) *Controller {
	t.Helper()
	controller := controllerOf(t, client)
	controller.now = now
	if controller.ready() == nil {
		t.Error("ready before anything is known")
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
	return controller
}

// TestHeartbeat: the controller updates an unchanged condition when its heartbeat is due, and keeps its transition time.
// It does not write a condition whose heartbeat is not due.
func TestHeartbeat(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	node := func(name string, age time.Duration) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{
			Type: pluginargs.TunnelReadyCondition, Status: corev1.ConditionFalse, Reason: ReasonNoAgent,
			LastHeartbeatTime: metav1.NewTime(now.Add(-age)), LastTransitionTime: metav1.NewTime(now.Add(-24 * time.Hour)),
		}}}}
	}
	client := fake.NewClientset(node("due", pluginargs.TunnelReadyHeartbeat+time.Second), node("fresh", pluginargs.TunnelReadyHeartbeat-time.Minute))
	controller := run(t, client, func() time.Time { return now })
	daemontest.Eventually(t, bound, func() error {
		n, err := client.CoreV1().Nodes().Get(t.Context(), "due", metav1.GetOptions{})
		if err != nil {
			return err
		}
		c := condition(n, pluginargs.TunnelReadyCondition)
		if !c.LastHeartbeatTime.Time.Equal(now) || !c.LastTransitionTime.Time.Equal(now.Add(-24*time.Hour)) {
			return fmt.Errorf("condition %+v", c)
		}
		return nil
	})
	for name, want := range map[string]time.Duration{"due": pluginargs.TunnelReadyHeartbeat, "fresh": time.Minute} {
		daemontest.Eventually(t, bound, func() error {
			again, err := controller.reconcile(t.Context(), name)
			if err == nil && again != want {
				err = fmt.Errorf("node %s: next in %s, want %s", name, again, want)
			}
			return err
		})
	}
	for _, action := range client.Actions() {
		if patch, ok := action.(clienttesting.PatchAction); ok && patch.GetName() != "due" {
			t.Errorf("node %s was written", patch.GetName())
		}
	}
}

// TestProbes: the controller is ready when it knows all nodes and agents, and alive while no worker is stuck.
func TestProbes(t *testing.T) {
	c := controllerOf(t, fake.NewClientset())
	server := httptest.NewServer(handler(c))
	t.Cleanup(server.Close)
	want := func(when, path string, code int) {
		t.Helper()
		response, err := server.Client().Get(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != code {
			t.Errorf("%s: %s says %d, want %d", when, path, response.StatusCode, code)
		}
	}
	want("at the start", "/livez", http.StatusOK)
	want("at the start", "/readyz", http.StatusServiceUnavailable)
	c.known.Store(true)
	want("when all is known", "/readyz", http.StatusOK)
	want("always", "/metrics", http.StatusOK)
	done := c.note("n")
	now := c.now()
	c.now = func() time.Time { return now.Add(stuck + time.Second) }
	want("with a worker that is stuck", "/livez", http.StatusServiceUnavailable)
	done()
	want("when it is not any more", "/livez", http.StatusOK)
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
