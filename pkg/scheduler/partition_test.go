// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"context"
	"fmt"
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bundlescheduler "github.com/fairlead-dev/fairlead/pkg/bundle/scheduler"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
)

// TestPartition: pods that an assignment selects land on the partition's nodes and nowhere else, without a change of
// their manifest, on a real API server that runs the policy.
func TestPartition(t *testing.T) {
	cp := newCluster(t)
	makeNodes(t, cp.Client, 4)
	b := partitioned()
	b.Scheduler.Assignments = []v1alpha1.Assignment{{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"batch": "true"}}}}
	b = b.Defaulted()
	intoPartition(t, cp, b, "node-001", "node-002")
	install(t, cp, b)
	createAssignments(t, cp, b)
	assigned := func(p *corev1.Pod) { p.Labels["batch"] = "true" }
	tolerating := func(p *corev1.Pod) {
		p.Spec.Tolerations = []corev1.Toleration{{Key: "other", Operator: corev1.TolerationOpExists}}
	}
	waitForPolicy(t, cp, v1alpha1.DefaultBatchProfile, assigned)

	makePods(t, cp.Client, "assigned", "", "100m", 6, assigned)
	makePods(t, cp.Client, "tolerating", "", "100m", 2, assigned, tolerating)
	makePods(t, cp.Client, "plain", "", "100m", 1)
	makePods(t, cp.Client, "foreign", "other-scheduler", "100m", 1, assigned)
	// As the DaemonSet controller makes them: for a node by its affinity, outside of the partition.
	makePods(t, cp.Client, "daemon", "", "100m", 1, assigned, controlledBy("DaemonSet"))
	makePods(t, cp.Client, "replica", "", "100m", 1, assigned, controlledBy("ReplicaSet"))
	for prefix, n := range map[string]int{"replica": 1, "assigned": 6, "tolerating": 2} {
		for pod, node := range waitBound(t, cp.Client, prefix, n) {
			if node != "node-001" && node != "node-002" {
				t.Errorf("%s is on %s, outside of the partition", pod, node)
			}
		}
	}
	for name, want := range map[string]string{"plain-000": "default-scheduler", "foreign-000": "other-scheduler", "daemon-000": "default-scheduler"} {
		pod, err := cp.Client.CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if pod.Spec.SchedulerName != want || pod.Spec.NodeName != "" {
			t.Errorf("%s: scheduler %s, node %q", name, pod.Spec.SchedulerName, pod.Spec.NodeName)
		}
	}
}

// partitioned is a bundle of fairlead-batch with a partition.
func partitioned() *v1alpha1.Bundle {
	b := &v1alpha1.Bundle{}
	b.Scheduler.BuiltInProfiles.Batch = &v1alpha1.BatchProfile{}
	b.Scheduler.Partition = &v1alpha1.Partition{
		NodeLabels: map[string]string{"pool": "batch"}, Taint: &corev1.Taint{Key: "pool", Value: "batch", Effect: corev1.TaintEffectNoSchedule},
	}
	return b.Defaulted()
}

// intoPartition gives nodes the partition's label and taint.
func intoPartition(t *testing.T, cp cluster, b *v1alpha1.Bundle, names ...string) {
	t.Helper()
	for _, name := range names {
		node, err := cp.Client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		maps.Copy(node.Labels, b.Scheduler.Partition.NodeLabels)
		node.Spec.Taints = []corev1.Taint{*b.Scheduler.Partition.Taint}
		if _, err := cp.Client.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// createAssignments creates the policies of a bundle's assignments and their bindings.
func createAssignments(t *testing.T, cp cluster, b *v1alpha1.Bundle) {
	t.Helper()
	objects, err := bundlescheduler.Objects(b)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		if kind := o.GetObjectKind().GroupVersionKind().Kind; kind == "MutatingAdmissionPolicy" || kind == "MutatingAdmissionPolicyBinding" {
			create(t, cp, o)
		}
	}
}

func controlledBy(kind string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: "owner", UID: "owner", Controller: new(true)}}
	}
}

// waitForPolicy waits until the API server has compiled the policy, which it does in the background.
func waitForPolicy(t *testing.T, cp cluster, profile string, change ...func(*corev1.Pod)) {
	t.Helper()
	tries := 0
	daemontest.Eventually(t, patience, func() error {
		prefix := fmt.Sprintf("try%d", tries)
		tries++
		makePods(t, cp.Client, prefix, "", "1m", 1, change...)
		pod, err := cp.Client.CoreV1().Pods("default").Get(t.Context(), prefix+"-000", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if pod.Spec.SchedulerName != profile {
			return fmt.Errorf("the policy has not changed the pod: it names %s", pod.Spec.SchedulerName)
		}
		return cp.Client.CoreV1().Pods("default").Delete(context.WithoutCancel(t.Context()), pod.Name, metav1.DeleteOptions{})
	})
}
