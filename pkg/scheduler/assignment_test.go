// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
)

// overlapping is a bundle whose assignments select the same pods: by namespace, by label, and by both.
func overlapping() *v1alpha1.Bundle {
	science := &metav1.LabelSelector{MatchLabels: map[string]string{"team": "science"}}
	b := allProfiles()
	b.Scheduler.Assignments = []v1alpha1.Assignment{
		{SchedulerName: v1alpha1.DefaultSpreadProfile, NamespaceSelector: science, PodSelector: &metav1.LabelSelector{
			MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: "example.com/tier", Operator: metav1.LabelSelectorOpIn, Values: []string{"web", "api"}},
				{Key: "legacy", Operator: metav1.LabelSelectorOpDoesNotExist},
			},
		}},
		{SchedulerName: v1alpha1.DefaultBatchProfile, NamespaceSelector: science},
		{SchedulerName: v1alpha1.DefaultBinpackProfile, PodSelector: &metav1.LabelSelector{
			MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: "batch", Operator: metav1.LabelSelectorOpExists},
				{Key: "batch", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"no"}},
			},
		}},
	}
	return b.Defaulted()
}

// TestAssignments: the first assignment in the list that selects a pod gives it its scheduler, whatever the order in
// which the API server runs the policies.
func TestAssignments(t *testing.T) {
	cp := newCluster(t)
	for name, labels := range map[string]map[string]string{"science": {"team": "science"}, "other": nil} {
		makeNamespace(t, cp, name, labels)
	}
	makeNamespace(t, cp, metav1.NamespaceSystem, nil)
	createAssignments(t, cp, overlapping())
	cases := []struct {
		namespace string
		labels    map[string]string
		want      string
	}{
		{"science", nil, v1alpha1.DefaultBatchProfile},
		{"science", map[string]string{"example.com/tier": "db"}, v1alpha1.DefaultBatchProfile},
		{"science", map[string]string{"example.com/tier": "web"}, v1alpha1.DefaultSpreadProfile},
		{"science", map[string]string{"example.com/tier": "api", "batch": "yes"}, v1alpha1.DefaultSpreadProfile},
		{"science", map[string]string{"example.com/tier": "web", "legacy": ""}, v1alpha1.DefaultBatchProfile},
		{"science", map[string]string{"batch": "yes"}, v1alpha1.DefaultBatchProfile},
		{"other", map[string]string{"batch": "yes"}, v1alpha1.DefaultBinpackProfile},
		{"other", map[string]string{"batch": "no"}, corev1.DefaultSchedulerName},
		{"other", map[string]string{"example.com/tier": "web"}, corev1.DefaultSchedulerName},
		{"other", nil, corev1.DefaultSchedulerName},
		{metav1.NamespaceSystem, map[string]string{"batch": "yes"}, corev1.DefaultSchedulerName},
	}
	for _, i := range []int{0, 2, 6} { // one for each policy: they are compiled in the background
		daemontest.Eventually(t, patience, func() error {
			if got := assigned(t, cp, cases[i].namespace, cases[i].labels); got == corev1.DefaultSchedulerName {
				return fmt.Errorf("no policy has changed a pod in %s with %v", cases[i].namespace, cases[i].labels)
			}
			return nil
		})
	}
	rounds := 4
	if testutil.Main() {
		rounds = 1
	}
	for round := range rounds {
		if round > 0 {
			reorder(t, cp, round)
		}
		for _, tc := range cases {
			if got := assigned(t, cp, tc.namespace, tc.labels); got != tc.want {
				t.Errorf("round %d: a pod in %s with %v names %s, want %s", round, tc.namespace, tc.labels, got, tc.want)
			}
		}
	}
}

func makeNamespace(t *testing.T, cp cluster, name string, labels map[string]string) {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	if _, err := cp.Client.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}} // no controller makes it
	if _, err := cp.Client.CoreV1().ServiceAccounts(name).Create(t.Context(), account, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
}

// assigned is the scheduler that a new pod gets.
func assigned(t *testing.T, cp cluster, namespace string, labels map[string]string) string {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "try", Labels: labels},
		Spec:       corev1.PodSpec{AutomountServiceAccountToken: ptr.To(false), Containers: []corev1.Container{{Name: "pause", Image: "pause"}}},
	}
	made, err := cp.Client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		t.Fatal(err)
	}
	return made.Spec.SchedulerName
}

// reorder changes a binding. The API server then sorts all policies again, which it does at most once a second.
func reorder(t *testing.T, cp cluster, round int) {
	t.Helper()
	bindings := cp.Client.AdmissionregistrationV1().MutatingAdmissionPolicyBindings()
	list, err := bindings.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) == 0 {
		t.Fatalf("bindings: %v, %v", list, err)
	}
	binding := &list.Items[0]
	binding.Annotations = map[string]string{"round": strconv.Itoa(round)}
	if _, err := bindings.Update(t.Context(), binding, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(1200 * time.Millisecond) // nothing shows that it has
}
