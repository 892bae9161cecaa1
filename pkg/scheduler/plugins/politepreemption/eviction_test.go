// SPDX-License-Identifier: Apache-2.0

package politepreemption_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/fairlead-dev/fairlead/pkg/scheduler/plugins/plugintest"
	"github.com/fairlead-dev/fairlead/pkg/scheduler/plugins/politepreemption"
)

// budget protects pods with a label from every disruption.
func budget(value string) *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "budget", Namespace: "default"},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"protected": value}}},
	}
}

func labeled(p *corev1.Pod, value string) *corev1.Pod {
	p.Labels = map[string]string{"protected": value}
	return p
}

func start(t *testing.T, nodes []*corev1.Node, pods []*corev1.Pod, further ...runtime.Object) *plugintest.Cluster {
	t.Helper()
	return plugintest.NewWith(t, nodes, pods, further,
		plugintest.Plugin{Name: politepreemption.Name, Factory: politepreemption.New, Points: []string{"PostFilter"}})
}

// preempt makes room for a pod that fits nowhere.
func preempt(t *testing.T, c *plugintest.Cluster, pod *corev1.Pod) (node string) {
	t.Helper()
	said, state := c.Filter(t, pod)
	statuses := framework.NewDefaultNodeToStatus()
	for name, why := range said {
		if why == "" {
			t.Fatal("the pod fits without preemption: the test tests nothing")
		}
		statuses.Set(name, fwk.NewStatus(fwk.Unschedulable, why))
	}
	result, status := c.Framework.RunPostFilterPlugins(t.Context(), state, pod, statuses)
	if !status.IsSuccess() {
		return ""
	}
	return result.NominatedNodeName
}

func gone(t *testing.T, c *plugintest.Cluster) []string {
	t.Helper()
	var names []string
	for _, name := range []string{"foreign", "own", "protected"} {
		if _, err := c.Client.CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{}); apierrors.IsNotFound(err) {
			names = append(names, name)
		}
	}
	return names
}

// TestBudgets: disruption budgets count among the scheduler's own pods, and do not make another scheduler's pod the
// victim: if there is no other way, the plugin violates a budget, as DefaultPreemption does.
func TestBudgets(t *testing.T) {
	for name, tc := range map[string]struct {
		pods    []*corev1.Pod
		node    string
		victims []string
	}{
		"the one without a budget": {[]*corev1.Pod{
			labeled(pod("protected", plugintest.Profile, "a", 1), "yes"), pod("own", plugintest.Profile, "b", 5),
		}, "b", []string{"own"}},
		"no other scheduler's pod instead": {[]*corev1.Pod{
			labeled(pod("protected", plugintest.Profile, "a", 1), "yes"), pod("foreign", "default-scheduler", "b", 0),
		}, "a", []string{"protected"}},
		"none at all": {[]*corev1.Pod{
			pod("protected", "default-scheduler", "a", 1), pod("foreign", "default-scheduler", "b", 0),
		}, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			// Pods that are gone from the start do not count as victims.
			preemptor := pod("preemptor", plugintest.Profile, "", 10)
			c := start(t, []*corev1.Node{node("a"), node("b")}, append(tc.pods, preemptor), budget("yes"))
			before := gone(t, c)
			if got := preempt(t, c, preemptor); got != tc.node {
				t.Errorf("nominated %q, want %q", got, tc.node)
			}
			victims := func() []string {
				return slices.DeleteFunc(gone(t, c), func(name string) bool { return slices.Contains(before, name) })
			}
			plugintest.Eventually(t, "the victims to be evicted", func() bool { return len(victims()) >= len(tc.victims) })
			if got := victims(); !slices.Equal(got, tc.victims) {
				t.Errorf("evicted %v, want %v", got, tc.victims)
			}
		})
	}
}

// TestAsynchronous: the API calls do not hold up the scheduler, and the pod is not tried again before they are done.
func TestAsynchronous(t *testing.T) {
	preemptor := pod("preemptor", plugintest.Profile, "", 10)
	c := start(t, []*corev1.Node{node("a")}, []*corev1.Pod{pod("own", plugintest.Profile, "a", 1), preemptor})
	calls, wait := make(chan struct{}, 10), make(chan struct{})
	c.Client.PrependReactor("delete", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		calls <- struct{}{}
		<-wait
		return false, nil, nil
	})
	if got := preempt(t, c, preemptor); got != "a" {
		t.Fatalf("nominated %q", got)
	}
	plugin := c.Plugin.(fwk.PreEnqueuePlugin)
	<-calls
	if status := plugin.PreEnqueue(t.Context(), preemptor); status.Code() != fwk.UnschedulableAndUnresolvable {
		t.Errorf("while the victim is being evicted: %v", status)
	}
	close(wait)
	plugintest.Eventually(t, "the pod to be let in again", func() bool { return plugin.PreEnqueue(t.Context(), preemptor).IsSuccess() })
	if got := gone(t, c); !slices.Contains(got, "own") {
		t.Errorf("gone are %v", got)
	}
}
