package scheduler_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
)

// TestBatchingIsLive: OpportunisticBatching gives hints in fairlead-batch, with all of Fairlead's plugins enabled, and
// gives none with the default plugins, which is why the profile exists.
func TestBatchingIsLive(t *testing.T) {
	const n = 60
	cp := daemontest.StartControlPlane(t, programs)
	makeNodes(t, cp.Client, n)
	b := allProfiles()
	makePods(t, cp.Client, "batch", v1alpha1.DefaultBatchProfile, "3", n)
	s := install(t, cp, b)
	nodes := waitBound(t, cp.Client, "batch", n)
	if used := sets.New(values(nodes)...); used.Len() != n {
		t.Errorf("%d nodes for %d pods of which one fits on a node", used.Len(), n)
	}
	used := s.metric(t, cp, "scheduler_batch_attempts_total", `profile="fairlead-batch"`, `result="hint_used"`)
	t.Logf("%v hints were used for %d pods", used, n)
	if used < n/2 {
		t.Errorf("only %v hints were used for %d equal pods", used, n)
	}

	if err := cp.Client.CoreV1().Pods("default").DeleteCollection(t.Context(), metav1.DeleteOptions{GracePeriodSeconds: new(int64)}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	makePods(t, cp.Client, "plain", "my-scheduler", "3", n)
	waitBound(t, cp.Client, "plain", n)
	if used := s.metric(t, cp, "scheduler_batch_attempts_total", `profile="my-scheduler"`, `result="hint_used"`); used > 0 {
		t.Errorf("%v hints with default plugins: the documentation of the profile is wrong", used)
	}
}

func values(m map[string]string) []string {
	var list []string
	for _, v := range m {
		list = append(list, v)
	}
	return list
}
