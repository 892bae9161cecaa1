// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/v1beta1"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
	"github.com/fairlead-dev/fairlead/pkg/operator"
)

// profileLooks are a Bundle and profiles, and reconcilers that look when they are told to.
type profileLooks struct {
	*env
	profiles dynamic.ResourceInterface
	r        []reconcile.Reconciler
}

func startProfiles(t *testing.T, spec map[string]any) *profileLooks {
	e := start(t)
	e.definitions()
	if _, err := e.bundles.Create(t.Context(), object("Bundle", "", "default", spec), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c := newRacing(t, e.cfg)
	return &profileLooks{env: e, profiles: e.kind("schedulerprofiles"), r: []reconcile.Reconciler{
		&operator.BundleReconciler{Client: c, Config: e.cfg}, &operator.ProfileReconciler{Client: c},
	}}
}

func (l *profileLooks) look() {
	l.Helper()
	for _, r := range l.r {
		if _, err := r.Reconcile(l.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: "default"}}); err != nil {
			l.Fatal(err)
		}
	}
}

func (l *profileLooks) create(name string, spec map[string]any) {
	l.Helper()
	if _, err := l.profiles.Create(l.Context(), object("SchedulerProfile", "", name, spec), metav1.CreateOptions{}); err != nil {
		l.Fatal(err)
	}
}

func (l *profileLooks) delete(name string) {
	l.Helper()
	if err := l.profiles.Delete(l.Context(), name, metav1.DeleteOptions{}); err != nil {
		l.Fatal(err)
	}
}

func (l *profileLooks) config() *corev1.ConfigMap {
	l.Helper()
	cm, err := l.client.CoreV1().ConfigMaps("kube-system").Get(l.Context(), "my-scheduler-config", metav1.GetOptions{})
	if err != nil {
		l.Fatal(err)
	}
	return cm
}

// has checks whether the configuration has a profile.
func (l *profileLooks) has(name string, wanted bool) {
	l.Helper()
	text, err := json.Marshal(l.config().Data)
	if err != nil {
		l.Fatal(err)
	}
	if strings.Contains(string(text), "schedulerName: "+name+`\n`) != wanted {
		l.Errorf("the configuration has profile %s: %v, want %v:\n%s", name, !wanted, wanted, text)
	}
}

// raw is the spec of a profile with one plugin.
func raw(name, plugin string) map[string]any {
	return map[string]any{"schedulerName": name, "strategy": "Raw", "raw": map[string]any{
		"plugins": map[string]any{"score": map[string]any{"disabled": []any{map[string]any{"name": plugin}}}},
	}}
}

// TestAssignedProfile: assignments may name a SchedulerProfile. While there is none of that name, the Bundle says so, and
// nothing is changed; TunnelPools, which have nothing to do with it, are applied.
func TestAssignedProfile(t *testing.T) {
	testutil.Full(t, "a variant of TestInstalled")
	daemontest.Beside(t)
	l := startProfiles(t, map[string]any{"scheduler": map[string]any{"assignments": []any{
		map[string]any{"schedulerName": "night-batch", "podSelector": map[string]any{"matchLabels": map[string]any{"batch": "true"}}},
	}}})
	policy := func() bool {
		t.Helper()
		_, err := l.client.AdmissionregistrationV1().MutatingAdmissionPolicies().Get(t.Context(), "my-scheduler-assign-0", metav1.GetOptions{})
		if client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
		return err == nil
	}
	says := func() {
		t.Helper()
		if c := l.condition(l.bundles, "default", v1beta1.BundleReconciled, v1beta1.ReasonInvalidBundle); !strings.Contains(c.Message, `assignments[0].schedulerName: Unsupported value: "night-batch"`) {
			t.Errorf("the condition does not name the field: %s", c.Message)
		}
	}
	l.look()
	says()
	if policy() {
		t.Error("Pods are assigned to a profile that does not exist")
	}
	l.create("other", map[string]any{"schedulerName": "other", "strategy": "Standard"})
	l.create("batch", map[string]any{"schedulerName": "night-batch", "strategy": "Batch"})
	l.look()
	l.reconciled(v1beta1.ReasonAsWanted)
	l.condition(l.profiles, "batch", v1beta1.ProfileAccepted, v1beta1.ReasonAccepted)
	l.condition(l.profiles, "other", v1beta1.ProfileAccepted, v1beta1.ReasonAccepted)
	l.has("night-batch", true)
	if !policy() {
		t.Error("no Pods are assigned to the profile")
	}

	pools := l.kind("tunnelpools").Namespace("kube-system")
	if _, err := pools.Create(t.Context(), object("TunnelPool", "kube-system", "edge", map[string]any{}), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	l.delete("batch")
	l.r = append(l.r, &operator.PoolReconciler{Client: newRacing(t, l.cfg), Config: l.cfg})
	l.look()
	says()
	l.has("night-batch", true)
	l.condition(pools, "edge", v1beta1.PoolAccepted, v1beta1.ReasonAccepted)

	// Assignments of a scheduler that is off do not count. It is on again for what follows.
	l.patch(`{"spec": {"scheduler": {"enabled": false}}}`)
	l.look()
	l.reconciled(v1beta1.ReasonAsWanted)
	l.patch(`{"spec": {"scheduler": {"enabled": true}}}`)
	l.look()
	says()

	// The deletion of the Bundle does not need the profile.
	l.patch(`{"spec": {"deletionPolicy": "Delete"}}`)
	l.look()
	if err := l.bundles.Delete(t.Context(), "default", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	l.look()
	if policy() {
		t.Error("the assignment is there after the deletion of the Bundle")
	}
}

// TestProfileBecomesInvalid: a profile with which the scheduler runs and that stops being valid, by a change of its own,
// changes nothing: Pods that name it are still scheduled. The Bundle names it, and its other parts are applied.
func TestProfileBecomesInvalid(t *testing.T) {
	testutil.Full(t, "a variant of TestAssignedProfile")
	daemontest.Beside(t)
	l := startProfiles(t, map[string]any{})
	l.create("x", raw("x", "ImageLocality"))
	l.look()
	l.reconciled(v1beta1.ReasonAsWanted)
	l.has("x", true)
	before, deployment := l.config(), l.versions()["my-scheduler"]

	patch := []byte(`{"spec": {"raw": {"plugins": {"score": {"disabled": [{"name": "ImageLocality"}, {"name": "ImageLocality"}], "enabled": [{"name": "NoSuchPlugin"}]}}}}}`)
	if _, err := l.profiles.Patch(t.Context(), "x", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	l.create("y", raw("x", "ImageLocality"))
	l.patch(`{"spec": {"konnectivity": {"agent": {"nodeSelector": {"edge": "true"}}}}}`)
	l.look()
	l.condition(l.profiles, "x", v1beta1.ProfileAccepted, v1beta1.ReasonInvalid)
	l.condition(l.profiles, "y", v1beta1.ProfileAccepted, v1beta1.ReasonNameConflict)
	if after := l.config(); after.ResourceVersion != before.ResourceVersion || l.versions()["my-scheduler"] != deployment {
		t.Errorf("the scheduler was changed: %v, before %v", after.Data, before.Data)
	}
	c := l.condition(l.bundles, "default", v1beta1.BundleReconciled, v1beta1.ReasonBlocked)
	for _, want := range []string{"SchedulerProfile x", "NoSuchPlugin", "correct the profile"} {
		if !strings.Contains(c.Message, want) {
			t.Errorf("the condition lacks %q: %s", want, c.Message)
		}
	}
	agents, err := l.client.AppsV1().DaemonSets("kube-system").Get(t.Context(), "konnectivity-agent", metav1.GetOptions{})
	if err != nil || agents.Spec.Template.Spec.NodeSelector["edge"] != "true" {
		t.Errorf("the rest of the Bundle was not applied: %+v, %v", agents, err)
	}

	// A profile that never ran holds nothing.
	l.delete("x")
	l.delete("y")
	l.create("z", raw("z", "NoSuchPlugin"))
	l.look()
	l.reconciled(v1beta1.ReasonAsWanted)
	l.has("x", false)
}
