// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	bundlescheduler "github.com/fairlead-dev/fairlead/pkg/bundle/scheduler"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
)

// TestRenderedRights: the RBAC rules that a bundle renders are enough for all profiles and plugins together, and
// each rule that a plugin adds is needed. The scheduler is bound to the bootstrap roles system:kube-scheduler and
// system:volume-scheduler, and has a Role of its own for its Lease.
// It observes SCHED-19, SCHED-50 and SCHED-51 of docs/requirements.md.
func TestRenderedRights(t *testing.T) {
	cp := newCluster(t)
	makeNodes(t, cp.Client, 4)
	b := allProfiles()
	s := install(t, cp, b)
	for _, profile := range bundlescheduler.ProfileNames(b) {
		makePods(t, cp.Client, profile, profile, "100m", 3)
		waitBound(t, cp.Client, profile, 3)
	}
	preempt(t, cp)
	daemontest.Eventually(t, patience, func() error {
		if code, body := s.get(t, cp, "/readyz?verbose"); code != http.StatusOK || !strings.Contains(body, "sched-handler-sync ok") {
			return fmt.Errorf("informers are not synced: %d %s", code, body)
		}
		return nil
	})
	user := "system:serviceaccount:" + b.Namespace + ":" + b.Scheduler.Name
	used, watched := sets.New[string](), sets.New[string]()
	informers := neededInformers(t, b)
	// The API server writes its audit log some time after it has answered.
	daemontest.Eventually(t, patience, func() error {
		for _, e := range cp.requests(t, user) {
			if e.ResponseStatus.Code == http.StatusForbidden || e.ResponseStatus.Code == http.StatusUnauthorized {
				t.Fatalf("%s %s was refused: %s", e.Verb, e.RequestURI, e.ResponseStatus.Message)
			}
			used.Insert(e.Verb + " " + e.ObjectRef.APIGroup + "/" + e.ObjectRef.Resource)
			if e.Verb == "watch" {
				watched.Insert(e.ObjectRef.Resource + "." + e.ObjectRef.APIGroup)
			}
		}
		for _, rule := range bundlescheduler.PluginRules(b) {
			// Informers list by watching; they fall back to a list with API servers that cannot.
			if need := "watch " + rule.APIGroups[0] + "/" + rule.Resources[0]; !used.Has(need) {
				return fmt.Errorf("the right to %s was not used: is the rule needed?", need)
			}
		}
		for _, need := range []string{"create /pods", "patch /pods", "create events.k8s.io/events", "update coordination.k8s.io/leases", "list /pods"} {
			if !used.Has(need) {
				return fmt.Errorf("the scheduler did not %s: the test tests too little; it did %v", need, sets.List(used))
			}
		}
		if missing := informers.Difference(watched); len(missing) > 0 {
			return fmt.Errorf("needs.go has informers that the scheduler does not have: %v", sets.List(missing))
		}
		return nil
	})
	compareNeeds(t, cp.requests(t, user), b)
}

// preempt makes a profile evict its own pod, which takes further rights.
func preempt(t *testing.T, cp cluster) {
	t.Helper()
	makePods(t, cp.Client, "fill", v1alpha1.DefaultBinpackProfile, "3500m", 4)
	waitBound(t, cp.Client, "fill", 3)
	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 1000}
	if _, err := cp.Client.SchedulingV1().PriorityClasses().Create(t.Context(), class, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	makePods(t, cp.Client, "urgent", v1alpha1.DefaultBinpackProfile, "3500m", 1, func(p *corev1.Pod) { p.Spec.PriorityClassName = "high" })
	daemontest.Eventually(t, patience, func() error {
		pod, err := cp.Client.CoreV1().Pods("default").Get(t.Context(), "urgent-000", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if pod.Status.NominatedNodeName == "" && pod.Spec.NodeName == "" {
			return fmt.Errorf("no node was nominated: %v", pod.Status.Conditions)
		}
		return nil
	})
}
