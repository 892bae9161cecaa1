// SPDX-License-Identifier: Apache-2.0

package rules_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-dev/fairlead/pkg/check"
	"github.com/fairlead-dev/fairlead/pkg/observe"
	"github.com/fairlead-dev/fairlead/pkg/observe/rules"
)

// without removes all Pods of a program, as where the API server refuses each of them.
func (w *world) without(role check.Role) {
	w.Programs.Value = slices.DeleteFunc(w.Programs.Value, func(p observe.Program) bool { return p.Role == role })
	if role != check.RoleAgent {
		return
	}
	w.DaemonSets.Value[0].Status.CurrentNumberScheduled, w.DaemonSets.Value[0].Status.NumberReady = 0, 0
	w.ServerMetrics[w.find(check.RoleServer).Name] = observe.Known(metric(observe.MetricBackends, 0))
	w.Kubelets = nil // no agent could answer
}

// refused is the event of a controller whose Pod the API server did not accept.
func (w *world) refused(kind, name, message string, age time.Duration) {
	w.Refusals.Value = append(w.Refusals.Value, corev1.Event{Reason: "FailedCreate", Message: message, LastTimestamp: metav1.Time{Time: now.Add(-age)},
		InvolvedObject: corev1.ObjectReference{Kind: kind, Namespace: w.Bundle.Namespace, Name: name}})
}

// TestNoPods proves that workloads whose Pods the API server refuses, so that not a single one runs, are found with the cause, and that no check
// says to install what is installed.
func TestNoPods(t *testing.T) {
	const quota, psa = "pods is forbidden: exceeded quota: few", "violates PodSecurity \"restricted:latest\": host namespaces"
	for name, tc := range map[string]struct {
		do   func(w *world)
		id   string
		want string
	}{
		"no ServiceAccount": {func(w *world) {
			w.without(check.RoleAgent)
			w.Accounts = observe.Known([]types.NamespacedName{})
			w.refused("DaemonSet", w.DaemonSets.Value[0].Name, "error looking up service account", time.Minute)
		}, "FL-KON-027", "ServiceAccount kube-system/konnectivity-agent"},
		"no ServiceAccount, servers outside": {func(w *world) {
			w.without(check.RoleAgent)
			w.without(check.RoleServer)
			w.APIServers.Err = check.Skip("unknown")
			w.Accounts = observe.Known([]types.NamespacedName{})
		}, "FL-KON-027", "no Pod of an agent can be created"},
		"quota": {func(w *world) {
			w.without(check.RoleAgent)
			w.refused("DaemonSet", "another", "not this one", time.Second)
			w.refused("DaemonSet", w.DaemonSets.Value[0].Name, "an old reason", time.Hour)
			w.refused("DaemonSet", w.DaemonSets.Value[0].Name, quota, time.Minute)
		}, "FL-KON-004", "2 of its 2 Pods do not exist: " + quota},
		"policy": {func(w *world) {
			w.without(check.RoleAgent)
			w.refused("DaemonSet", w.DaemonSets.Value[0].Name, psa, time.Minute)
		}, "FL-KON-004", psa},
		"events are gone": {func(w *world) { w.without(check.RoleAgent) }, "FL-KON-004", "2 of its 2 Pods do not exist"},
		"all have ended": {func(w *world) {
			w.without(check.RoleAgent)
			w.DaemonSets.Value[0].Status.CurrentNumberScheduled = 2
		}, "FL-KON-003", "all of its 2 Pods have ended"},
		"no node fits": {func(w *world) {
			w.without(check.RoleAgent)
			w.DaemonSets.Value[0].Status.DesiredNumberScheduled = 0
		}, "FL-KON-004", "no node fits"},
		"scheduler": {func(w *world) {
			w.without(check.RoleScheduler)
			w.refused("ReplicaSet", w.Deployments.Value[0].Name+"-5d9f", quota, time.Minute)
		}, "FL-SCH-001", quota},
	} {
		t.Run(name, func(t *testing.T) {
			w := healthy(t)
			tc.do(w)
			got := map[string]rules.Status{}
			for _, r := range rules.Judge(w.Snapshot, rules.Options{}).Checks {
				if r.Status != rules.OK && r.Status != rules.Skipped {
					got[r.ID] = r.Status
				}
				if r.ID != tc.id {
					continue
				}
				if len(r.Findings) != 1 || !strings.Contains(r.Findings[0].Object+": "+r.Findings[0].Message, tc.want) {
					t.Errorf("no %q in %+v", tc.want, r)
				}
			}
			if diff := cmp.Diff(map[string]rules.Status{tc.id: rules.Failed}, got); diff != "" {
				t.Errorf("results that are not ok (-want +got):\n%s", diff)
			}
		})
	}
}

// TestSkippedWorkload proves that a workload that a check cannot judge hides no finding of another one.
func TestSkippedWorkload(t *testing.T) {
	w := healthy(t)
	w.without(check.RoleAgent)
	w.Accounts = observe.Known([]types.NamespacedName{})
	other := w.DaemonSets.Value[0].DeepCopy()
	other.Name = "agents-elsewhere"
	other.Spec.Template.Spec.ServiceAccountName = "other"
	other.Status.CurrentNumberScheduled = 1
	w.DaemonSets.Value = append(w.DaemonSets.Value, *other)
	w.Accounts.Value = append(w.Accounts.Value, types.NamespacedName{Namespace: other.Namespace, Name: "other"})
	for id, want := range map[string]string{"FL-KON-003": "have ended", "FL-KON-004": "do not exist"} {
		r := only(w, id)
		if len(r.Findings) != 1 || !strings.Contains(r.Findings[0].Object, other.Name) || !strings.Contains(r.Findings[0].Message, want) {
			t.Errorf("got %+v, want %q of %s", r, want, other.Name)
		}
	}
}
