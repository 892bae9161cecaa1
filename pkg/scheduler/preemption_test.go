// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	schedulerv1 "k8s.io/kube-scheduler/config/v1"
	"k8s.io/kubernetes/pkg/apis/scheduling"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
	"github.com/fairlead-dev/fairlead/pkg/scheduler/pluginargs"
)

const (
	// polite is the built-in profile, allowed one that may evict the default scheduler's pods, inTree one with
	// DefaultPreemption and the barrier.
	polite  = v1alpha1.DefaultSchedulerName
	allowed = "allowed"
	inTree  = "in-tree"

	low, high = "low", "high"
)

// besides is a bundle of these profiles.
func besides() *v1alpha1.Bundle {
	enable := func(names ...string) *schedulerv1.Plugins {
		plugins := &schedulerv1.Plugins{}
		for _, name := range names {
			plugins.MultiPoint.Enabled = append(plugins.MultiPoint.Enabled, schedulerv1.Plugin{Name: name})
		}
		return plugins
	}
	name := func(s string) *string { return &s }
	instead := enable(pluginargs.FailoverBarrier, pluginargs.PolitePreemption)
	instead.MultiPoint.Disabled = []schedulerv1.Plugin{{Name: "DefaultPreemption"}}
	b := &v1alpha1.Bundle{}
	b.Scheduler.BuiltInProfiles.Standard = &v1alpha1.StandardProfile{}
	b.Scheduler.Profiles = []schedulerv1.KubeSchedulerProfile{
		{SchedulerName: name(allowed), Plugins: instead, PluginConfig: []schedulerv1.PluginConfig{{
			Name: pluginargs.PolitePreemption, Args: runtime.RawExtension{Object: &pluginargs.PolitePreemptionArgs{Evict: []string{corev1.DefaultSchedulerName}}},
		}}},
		{SchedulerName: name(inTree), Plugins: enable(pluginargs.FailoverBarrier)},
	}
	return b.Defaulted()
}

// crowd is a cluster without the default scheduler, whose pods are made where it would have put them.
type crowd struct{ cluster }

// TestPreemption: with a real API server and the program as a bundle installs it, the test checks which pods are evicted
// for which, and which resources are reserved for which.
func TestPreemption(t *testing.T) {
	c := crowd{newCluster(t)}
	makeNodes(t, c.Client, 10)
	for name, value := range map[string]int32{low: 1, high: 1000} {
		class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value}
		if _, err := c.Client.SchedulingV1().PriorityClasses().Create(t.Context(), class, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	// Pods of a node that is gone keep the barrier shut for the first cycle.
	c.make(t, "orphan", corev1.DefaultSchedulerName, "", on("gone"))
	c.nominate(t, "kept-polite", polite, "node-000", "node-001")
	c.nominate(t, "kept-in-tree", inTree, "node-002", "node-003")
	install(t, c.cluster, besides())

	t.Run("a new leader keeps nominations", func(t *testing.T) {
		c.keeps(t, "kept-polite", "node-000")
		c.keeps(t, "kept-in-tree", "node-002")
	})
	// kubernetes#130429
	for i, tc := range []struct {
		name, victim, preemptor, priority string
		evicts                            bool
	}{
		{"another-schedulers-pod", corev1.DefaultSchedulerName, polite, high, false},
		{"own-pod", polite, polite, high, true},
		{"allowed", corev1.DefaultSchedulerName, allowed, high, true},
		{"system-priority", corev1.DefaultSchedulerName, polite, scheduling.SystemClusterCritical, true},
		{"in-tree", corev1.DefaultSchedulerName, inTree, high, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			node := fmt.Sprintf("node-%03d", 4+i)
			c.make(t, tc.name+"-victim", tc.victim, low, on(node))
			c.make(t, tc.name, tc.preemptor, tc.priority, only(node))
			if tc.evicts {
				waitBound(t, c.Client, tc.name, 1)
				if _, err := c.Client.CoreV1().Pods("default").Get(t.Context(), tc.name+"-victim-000", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
					t.Errorf("the victim is still there: %v", err)
				}
				return
			}
			c.waitSays(t, tc.name, "No preemption victims found")
			c.wantUntouched(t, tc.name+"-victim")
			if pod := c.pod(t, tc.name); pod.Spec.NodeName != "" || pod.Status.NominatedNodeName != "" {
				t.Errorf("the pod has node %q and nomination %q", pod.Spec.NodeName, pod.Status.NominatedNodeName)
			}
		})
	}
	t.Run("nominated room", func(t *testing.T) { c.nominatedRoom(t, "node-009") })
}

// nominatedRoom: a profile without ForeignNominations uses the resources that another scheduler has nominated for its
// pod. A profile with it uses them only once the nomination is cleared.
func (c crowd) nominatedRoom(t *testing.T, node string) {
	c.make(t, "foreign", corev1.DefaultSchedulerName, high, only(node))
	c.setStatus(t, "foreign", func(s *corev1.PodStatus) { s.NominatedNodeName = node })
	// The informer tells the plugin and the queue, each in its time: where the queue was faster, try another Pod.
	daemontest.Eventually(t, patience, func() error {
		c.make(t, "kept-out", polite, low, only(node))
		if pod := c.tried(t, "kept-out"); pod.Spec.NodeName != "" {
			c.remove(t, "kept-out")
			return fmt.Errorf("the pod is on %s", pod.Spec.NodeName)
		}
		return nil
	})
	c.waitSays(t, "kept-out", "node(s) have room that another scheduler has nominated for its pod")
	c.make(t, "unaware", inTree, low, only(node))
	waitBound(t, c.Client, "unaware", 1)
	for _, name := range []string{"unaware", "foreign"} {
		c.remove(t, name)
	}
	waitBound(t, c.Client, "kept-out", 1)
}

// nominate creates the state that a leader leaves behind after it has evicted a pod: the preemptor with a nominated
// node, the victim, which takes time to terminate, and another node with a pod that would be a better victim.
func (c crowd) nominate(t *testing.T, name, profile, node, other string) {
	t.Helper()
	c.make(t, name+"-ending", profile, low, on(node), func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = new(int64(300)) })
	c.setStatus(t, name+"-ending", func(s *corev1.PodStatus) {
		s.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: corev1.PodReasonPreemptionByScheduler}}
	})
	if err := c.Client.CoreV1().Pods("default").Delete(t.Context(), name+"-ending-000", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.make(t, name+"-other", profile, "", on(other))
	c.make(t, name, profile, high, only(node, other))
	c.setStatus(t, name, func(s *corev1.PodStatus) { s.NominatedNodeName = node })
}

// keeps checks that the barrier held back the preemptor, and that the preemptor still waited for its node and got it.
func (c crowd) keeps(t *testing.T, name, node string) {
	t.Helper()
	c.waitSays(t, name, "not eligible due to a terminating pod on the nominated node")
	events, err := c.Client.EventsV1().Events("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	held := false
	for _, e := range events.Items {
		held = held || e.Regarding.Name == name+"-000" && strings.Contains(e.Note, "until the new leader's caches have caught up")
	}
	if !held {
		t.Errorf("the barrier did not hold %s back: the test tests nothing", name)
	}
	if got := c.pod(t, name).Status.NominatedNodeName; got != node {
		t.Errorf("%s is nominated for %q, want %s", name, got, node)
	}
	c.wantUntouched(t, name+"-other")
	c.remove(t, name+"-ending")
	if got := waitBound(t, c.Client, name, 1)[name+"-000"]; got != node {
		t.Errorf("%s is on %s, want %s", name, got, node)
	}
	c.wantUntouched(t, name+"-other")
}

// make makes a pod that leaves no room on a node for a second one, and ends at once when it is deleted.
func (c crowd) make(t *testing.T, name, profile, priority string, change ...func(*corev1.Pod)) {
	t.Helper()
	makePods(t, c.Client, name, profile, "3", 1, append([]func(*corev1.Pod){func(p *corev1.Pod) {
		p.Spec.PriorityClassName, p.Spec.TerminationGracePeriodSeconds = priority, new(int64)
	}}, change...)...)
}

// on puts a pod on a node, as another scheduler would.
func on(node string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Spec.NodeName = node } }

// only lets a pod on some nodes.
func only(nodes ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
				{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: nodes},
			}}},
		}}}
	}
}

func (c crowd) pod(t *testing.T, name string) *corev1.Pod {
	t.Helper()
	pod, err := c.Client.CoreV1().Pods("default").Get(t.Context(), name+"-000", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

// tried waits until the scheduler has bound a pod or said why it has not.
func (c crowd) tried(t *testing.T, name string) (pod *corev1.Pod) {
	t.Helper()
	daemontest.Eventually(t, patience, func() error {
		pod = c.pod(t, name)
		if pod.Spec.NodeName == "" && len(pod.Status.Conditions) == 0 {
			return fmt.Errorf("the scheduler has not tried %s", name)
		}
		return nil
	})
	return pod
}

func (c crowd) setStatus(t *testing.T, name string, change func(*corev1.PodStatus)) {
	t.Helper()
	pod := c.pod(t, name)
	change(&pod.Status)
	if _, err := c.Client.CoreV1().Pods("default").UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// remove deletes a pod as a kubelet does whose containers have ended.
func (c crowd) remove(t *testing.T, name string) {
	t.Helper()
	if err := c.Client.CoreV1().Pods("default").Delete(context.WithoutCancel(t.Context()), name+"-000", metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
		t.Fatal(err)
	}
}

func (c crowd) wantUntouched(t *testing.T, name string) {
	t.Helper()
	if pod := c.pod(t, name); pod.DeletionTimestamp != nil {
		t.Errorf("%s is being evicted", name)
	}
}

// waitSays waits until the scheduler has tried a pod and says why it is not bound.
func (c crowd) waitSays(t *testing.T, name, why string) {
	t.Helper()
	daemontest.Eventually(t, patience, func() error {
		for _, condition := range c.pod(t, name).Status.Conditions {
			if condition.Type == corev1.PodScheduled && strings.Contains(condition.Message, why) {
				return nil
			}
		}
		return fmt.Errorf("the scheduler does not say of %s: %s: %+v", name, why, c.pod(t, name).Status.Conditions)
	})
}
