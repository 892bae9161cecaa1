// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

func pendingPod(name, scheduler string, edit func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, CreationTimestamp: metav1.NewTime(time.Now().Add(-time.Hour))},
		Spec:       corev1.PodSpec{SchedulerName: scheduler},
		Status:     corev1.PodStatus{Phase: corev1.PodPending},
	}
	if edit != nil {
		edit(p)
	}
	return p
}

// TestPodsOfNoScheduler: pods whose scheduler does not exist cause a warning, not a failure. Pods that wait for an
// existing scheduler cause neither.
func TestPodsOfNoScheduler(t *testing.T) {
	const typo = "my-schedular"
	for name, tc := range map[string]struct {
		objects []runtime.Object
		want    string
	}{
		"misspelled":      {[]runtime.Object{pendingPod("a", typo, nil), pendingPod("b", typo, nil)}, `scheduler "my-schedular" (2, for example default/a)`},
		"ours":            {[]runtime.Object{pendingPod("a", "my-scheduler", nil)}, ""},
		"the stock one's": {[]runtime.Object{pendingPod("a", "default-scheduler", nil)}, ""},
		"new":             {[]runtime.Object{pendingPod("a", typo, func(p *corev1.Pod) { p.CreationTimestamp = metav1.Now() })}, ""},
		"gated":           {[]runtime.Object{pendingPod("a", typo, func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "x"}} })}, ""},
		"does not fit": {[]runtime.Object{pendingPod("a", typo, func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse}}
		})}, ""},
		"going away": {[]runtime.Object{pendingPod("a", typo, func(p *corev1.Pod) {
			p.DeletionTimestamp, p.Finalizers = &metav1.Time{Time: time.Now()}, []string{"x/y"}
		})}, ""},
		"ended":             {[]runtime.Object{pendingPod("a", typo, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })}, ""},
		"scheduler of some": {[]runtime.Object{pendingPod("a", "volcano", nil), pendingPod("b", "volcano", func(p *corev1.Pod) { p.Spec.NodeName = "n" })}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			warnings := coexistenceWarnings(t, tc.objects)
			if (tc.want == "") != (len(warnings) == 0) || !strings.Contains(strings.Join(warnings, "\n"), tc.want) {
				t.Errorf("warnings %q, want %q", warnings, tc.want)
			}
		})
	}
}

// TestPodsOfManySchedulers: the warnings are bounded.
func TestPodsOfManySchedulers(t *testing.T) {
	var objects []runtime.Object
	for i := range 8 {
		objects = append(objects, pendingPod(fmt.Sprint("p", i), fmt.Sprint("s", i), nil))
	}
	warnings := coexistenceWarnings(t, objects)
	if len(warnings) != maxIgnoredNames+1 || !strings.HasPrefix(warnings[maxIgnoredNames], "pending pods name 3 more schedulers") {
		t.Errorf("%d warnings: %q", len(warnings), warnings)
	}
}

func coexistenceWarnings(t *testing.T, objects []runtime.Object) []string {
	t.Helper()
	env := &Env{Config: &rest.Config{Host: "x"}, Client: fake.NewClientset(objects...), Coexistence: CoexistenceOf(v1alpha1.New())}
	if err := env.Complete(); err != nil {
		t.Fatal(err)
	}
	res := runOne(t.Context(), env, checkOf("x", schedulerCoexistence), Options{}.withDefaults(), shared{})
	wantResult(t, res, "")
	return res.Warnings
}
