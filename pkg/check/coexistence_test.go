// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

func configMap(name, text string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name}, Data: map[string]string{"config.yaml": text}}
}

func poolNode(name, pool, taint string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"pool": pool}}}
	if taint != "" {
		n.Spec.Taints = []corev1.Taint{{Key: "pool", Value: taint, Effect: corev1.TaintEffectNoSchedule}}
	}
	return n
}

// boundBy is the Scheduled event of a scheduler on a host for a pod that it has
// bound.
func boundBy(scheduler, host string, ago time.Duration) *corev1.Event {
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-0." + scheduler + host}, Reason: "Scheduled",
		InvolvedObject:      corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "web-0"},
		ReportingController: scheduler, ReportingInstance: scheduler + "-" + host, EventTime: metav1.NewMicroTime(time.Now().Add(-ago)),
	}
}

// TestCoexistence proves that the check finds another scheduler with our names
// or our Lease, and nodes that do not match the bundle's partition.
// It observes SCHED-03 of docs/requirements.md.
func TestCoexistence(t *testing.T) {
	const kind = "kind: KubeSchedulerConfiguration\n"
	held := func(holder string) *coordinationv1.Lease {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "my-scheduler"},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder}}
	}
	partition := &v1alpha1.Partition{
		NodeLabels: map[string]string{"pool": "batch"}, Taint: &corev1.Taint{Key: "pool", Value: "batch", Effect: corev1.TaintEffectNoSchedule},
	}
	for name, tc := range map[string]struct {
		objects   []runtime.Object
		partition *v1alpha1.Partition
		owns      error
		want      string
	}{
		"alone":                   {objects: []runtime.Object{held("ours"), configMap("my-scheduler-config", kind+"profiles: [{schedulerName: my-scheduler}]")}},
		"another name and Lease":  {objects: []runtime.Object{configMap("other", kind+"profiles: [{schedulerName: other}]\nleaderElection: {resourceName: other}")}},
		"no election":             {objects: []runtime.Object{configMap("other", kind+"profiles: [{schedulerName: other}]\nleaderElection: {leaderElect: false, resourceName: my-scheduler}")}},
		"something else":          {objects: []runtime.Object{configMap("docs", "write KubeSchedulerConfiguration: {{")}},
		"same name":               {objects: []runtime.Object{configMap("other", kind+"profiles: [{schedulerName: x}, {schedulerName: my-scheduler}]")}, want: `ConfigMap kube-system/other, key config.yaml configures another scheduler with the profile "my-scheduler"`},
		"same Lease":              {objects: []runtime.Object{configMap("other", kind+"profiles: [{schedulerName: x}]\nleaderElection: {resourceName: my-scheduler}")}, want: "Lease kube-system/my-scheduler, which is ours"},
		"holder cannot be judged": {objects: []runtime.Object{held("ours")}, owns: errors.New("no list"), want: "no list"},
		"no holder":               {objects: []runtime.Object{held("")}},
		"our own bindings":        {objects: []runtime.Object{boundBy("my-scheduler", "ours", time.Minute), boundBy("my-scheduler", "my-scheduler-1-old", time.Minute), boundBy("default-scheduler", "cp", time.Minute)}},
		"a stranger of our name":  {objects: []runtime.Object{boundBy("my-scheduler", "my-scheduler-1-other", time.Minute)}, want: `a scheduler on host "my-scheduler-1-other" bound pod default/web-0`},
		"bindings of long ago":    {objects: []runtime.Object{boundBy("my-scheduler", "cp", time.Hour)}},
		"a stranger binds":        {objects: []runtime.Object{boundBy("my-scheduler", "ours", time.Minute), boundBy("my-scheduler", "cp-1", time.Minute)}, want: `a scheduler on host "cp-1" bound pod default/web-0 as "my-scheduler"`},
		"partition":               {partition: partition, objects: []runtime.Object{poolNode("a", "batch", "batch"), poolNode("b", "", "")}},
		"partition without nodes": {partition: partition, objects: []runtime.Object{poolNode("b", "", "")}, want: "no node has the labels pool=batch"},
		"partition not tainted":   {partition: partition, objects: []runtime.Object{poolNode("a", "batch", "batch"), poolNode("b", "batch", "other")}, want: "nodes b are in the scheduler's partition but do not have its taint pool=batch:NoSchedule"},
		"taint outside":           {partition: partition, objects: []runtime.Object{poolNode("a", "batch", "batch"), poolNode("b", "", "batch")}, want: "nodes b have the partition's taint"},
		"labels alone":            {partition: &v1alpha1.Partition{NodeLabels: partition.NodeLabels}, objects: []runtime.Object{poolNode("a", "batch", "")}},
	} {
		t.Run(name, func(t *testing.T) {
			b := v1alpha1.New()
			b.Scheduler.Partition = tc.partition
			env := &Env{
				Config: &rest.Config{Host: "x"}, Client: fake.NewClientset(tc.objects...), Coexistence: CoexistenceOf(b),
				OwnsIdentity: func(_ context.Context, holder string) (bool, error) { return holder == "ours", tc.owns },
				FormerIdentity: func(_ context.Context, holder string, at time.Time) (bool, error) {
					return holder == "my-scheduler-1-old" && time.Since(at) > 30*time.Second, nil
				},
			}
			if err := env.Complete(); err != nil {
				t.Fatal(err)
			}
			res := runOne(t.Context(), env, checkOf("x", schedulerCoexistence), Options{}.withDefaults(), shared{})
			wantResult(t, res, tc.want)
			if tc.want != "" && tc.owns == nil && (res.Hint == "" || strings.Contains(res.Hint, "%!")) {
				t.Errorf("hint %q", res.Hint)
			}
		})
	}
}
