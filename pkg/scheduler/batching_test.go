// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	bundlescheduler "github.com/fairlead-dev/fairlead/pkg/bundle/scheduler"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// TestBatchingIsLive: OpportunisticBatching gives hints in fairlead-batch, with all of Fairlead's plugins enabled, and
// gives none with the default plugins, which is why the profile exists.
func TestBatchingIsLive(t *testing.T) {
	const n = 60
	cp := newCluster(t)
	makeNodes(t, cp.Client, n)
	b := allProfiles()
	makePods(t, cp.Client, "batch", v1alpha1.DefaultBatchProfile, "3", n)
	s := install(t, cp, b)
	nodes := waitBound(t, cp.Client, "batch", n)
	if used := sets.New(values(nodes)...); used.Len() != n {
		t.Errorf("%d nodes for %d pods of which one fits on a node", used.Len(), n)
	}
	s.wantHints(t, cp, n)

	if err := cp.Client.CoreV1().Pods("default").DeleteCollection(t.Context(), metav1.DeleteOptions{GracePeriodSeconds: new(int64)}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	makePods(t, cp.Client, "plain", "my-scheduler", "3", n)
	waitBound(t, cp.Client, "plain", n)
	if used := s.hints(t, cp, "my-scheduler"); used > 0 {
		t.Errorf("%v hints with default plugins: the documentation of the profile is wrong", used)
	}
}

// TestBatchingInPartition: the affinity that a partition adds to a profile does not keep its pods from being signed, and
// hints lead to the partition's nodes only.
func TestBatchingInPartition(t *testing.T) {
	const n = 40
	cp := newCluster(t)
	makeNodes(t, cp.Client, 2*n)
	b := partitioned()
	within := sets.New[string]()
	for i := range n {
		within.Insert(fmt.Sprintf("node-%03d", 2*i))
	}
	intoPartition(t, cp, b, sets.List(within)...)
	makePods(t, cp.Client, "batch", v1alpha1.DefaultBatchProfile, "3", n, func(p *corev1.Pod) {
		p.Spec.Tolerations = []corev1.Toleration{*bundlescheduler.Toleration(b)}
	})
	s := install(t, cp, b)
	if used := sets.New(values(waitBound(t, cp.Client, "batch", n))...); !used.Equal(within) {
		t.Errorf("the pods are on %v, and the partition is %v", sets.List(used), sets.List(within))
	}
	s.wantHints(t, cp, n)
}

func (i installed) hints(t *testing.T, cp cluster, profile string) float64 {
	t.Helper()
	return i.metric(t, cp, "scheduler_batch_attempts_total", `profile="`+profile+`"`, `result="hint_used"`)
}

// wantHints wants a hint for more than half of n equal pods.
func (i installed) wantHints(t *testing.T, cp cluster, n int) {
	t.Helper()
	used := i.hints(t, cp, v1alpha1.DefaultBatchProfile)
	t.Logf("%v hints were used for %d pods", used, n)
	if used < float64(n)/2 {
		t.Errorf("only %v hints were used for %d equal pods", used, n)
	}
}

func values(m map[string]string) []string {
	var list []string
	for _, v := range m {
		list = append(list, v)
	}
	return list
}
