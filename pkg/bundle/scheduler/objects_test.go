// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/scheduler"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

func objects(t *testing.T, b *v1alpha1.Bundle) []component.Object {
	t.Helper()
	out, err := scheduler.Objects(b)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// find returns the object of that type and name.
func find[T component.Object](t *testing.T, all []component.Object, name string) T {
	t.Helper()
	for _, o := range all {
		if typed, ok := o.(T); ok && typed.GetName() == name {
			return typed
		}
	}
	var none T
	t.Fatalf("no %T %s", none, name)
	return none
}

// TestIdentity: the ServiceAccount my-scheduler is bound to the roles
// system:kube-scheduler, system:volume-scheduler and
// extension-apiserver-authentication-reader.
// It observes SCHED-10, SCHED-11, SCHED-12, SCHED-13 and SCHED-14 of docs/requirements.md.
// It also observes OLD-06 of docs/requirements.md.
func TestIdentity(t *testing.T) {
	all := objects(t, v1alpha1.New())
	account := find[*corev1.ServiceAccount](t, all, "my-scheduler")
	if account.Namespace != "kube-system" {
		t.Errorf("ServiceAccount in %s", account.Namespace)
	}
	subjects := []rbacv1.Subject{{Kind: "ServiceAccount", Name: "my-scheduler", Namespace: "kube-system"}}
	ref := func(kind, name string) rbacv1.RoleRef {
		return rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: kind, Name: name}
	}
	for name, role := range map[string]string{
		"my-scheduler-as-kube-scheduler": "system:kube-scheduler", "my-scheduler-as-volume-scheduler": "system:volume-scheduler",
	} {
		got := find[*rbacv1.ClusterRoleBinding](t, all, name)
		if diff := cmp.Diff(subjects, got.Subjects); diff != "" || got.RoleRef != ref("ClusterRole", role) {
			t.Errorf("%s: role %v, subjects (-want +got):\n%s", name, got.RoleRef, diff)
		}
	}
	reader := find[*rbacv1.RoleBinding](t, all, "my-scheduler-extension-apiserver-authentication-reader")
	if reader.Namespace != "kube-system" || reader.RoleRef != ref("Role", "extension-apiserver-authentication-reader") {
		t.Errorf("%s/%s binds %v", reader.Namespace, reader.Name, reader.RoleRef)
	}
	if diff := cmp.Diff(subjects, reader.Subjects); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestLeaseRights: the Role for the Lease is in the namespace of the Lease,
// names the Lease, and has no rule for endpoints.
// It observes SCHED-33 of docs/requirements.md.
// It also observes OLD-02 of docs/requirements.md.
func TestLeaseRights(t *testing.T) {
	b := v1alpha1.New()
	b.Scheduler.LeaderElection.LeaseName, b.Scheduler.LeaderElection.LeaseNamespace = "lock", "locks"
	all := objects(t, b)
	role := find[*rbacv1.Role](t, all, "my-scheduler-leader-election")
	leases := func(names []string, verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, ResourceNames: names, Verbs: verbs}
	}
	want := []rbacv1.PolicyRule{leases(nil, "create"), leases([]string{"lock"}, "get", "update", "list", "watch")}
	if diff := cmp.Diff(want, role.Rules); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	binding := find[*rbacv1.RoleBinding](t, all, "my-scheduler-leader-election")
	if role.Namespace != "locks" || binding.Namespace != "locks" || binding.RoleRef.Name != role.Name {
		t.Errorf("role in %s, binding in %s to %s", role.Namespace, binding.Namespace, binding.RoleRef.Name)
	}
	if got := binding.Subjects[0].Namespace; got != "kube-system" {
		t.Errorf("the subject's namespace is %s", got)
	}
}

// TestDeployment: the Deployment has the fields of 'Configure Multiple
// Schedulers' in the Kubernetes documentation.
// It observes SCHED-15, SCHED-16, SCHED-17, SCHED-18, SCHED-19, SCHED-20, SCHED-21, SCHED-24 and SCHED-37 of
// docs/requirements.md.
// It also observes OLD-05 of docs/requirements.md.
func TestDeployment(t *testing.T) {
	all := objects(t, v1alpha1.New())
	d := find[*appsv1.Deployment](t, all, "my-scheduler")
	pod := d.Spec.Template.Spec
	c := pod.Containers[0]
	labels := map[string]string{"component": "scheduler", "tier": "control-plane"}
	check := func(row string, ok bool, got any) {
		t.Helper()
		if !ok {
			t.Errorf("%s: got %v", row, got)
		}
	}
	check("labels", maps.Equal(d.Labels, labels), d.Labels)
	// The documented selector has only these two labels; see TestSelector for why
	// ours has more.
	check("selector", d.Spec.Selector.MatchLabels["component"] == "scheduler" &&
		d.Spec.Selector.MatchLabels["tier"] == "control-plane", d.Spec.Selector)
	check("pod labels", d.Spec.Template.Labels["version"] == "second" && d.Spec.Template.Labels["component"] == "scheduler" &&
		d.Spec.Template.Labels["tier"] == "control-plane", d.Spec.Template.Labels)
	check("two replicas", ptr.Deref(d.Spec.Replicas, 0) == 2, d.Spec.Replicas)
	check("service account and host namespaces", pod.ServiceAccountName == "my-scheduler" && !pod.HostNetwork && !pod.HostPID, pod)
	check("container name", c.Name == "kube-second-scheduler", c.Name)
	check("command", slices.Equal(c.Command, []string{"/usr/local/bin/kube-scheduler"}), c.Command)
	check("argument", c.Args[0] == "--config=/etc/kubernetes/my-scheduler/my-scheduler-config.yaml", c.Args)
	check("feature gate", slices.Contains(c.Args, "--feature-gates=CoordinatedLeaderElection=false"), c.Args)
	live, ready := c.LivenessProbe.HTTPGet, c.ReadinessProbe.HTTPGet
	check("liveness", live.Path == "/livez" && live.Port.IntValue() == 10259 && live.Scheme == "HTTPS" &&
		c.LivenessProbe.InitialDelaySeconds == 15, c.LivenessProbe)
	check("readiness", ready.Path == "/readyz" && ready.Port.IntValue() == 10259 && ready.Scheme == "HTTPS" &&
		c.ReadinessProbe.InitialDelaySeconds == 0, c.ReadinessProbe)
	check("CPU request and privileges", c.Resources.Requests.Cpu().MilliValue() == 100 && !ptr.Deref(c.SecurityContext.Privileged, true), c.Resources)
	check("configuration volume", pod.Volumes[0].Name == "config-volume" && pod.Volumes[0].ConfigMap.Name == "my-scheduler-config" &&
		c.VolumeMounts[0].MountPath == "/etc/kubernetes/my-scheduler", pod.Volumes)
	config := find[*corev1.ConfigMap](t, all, "my-scheduler-config").Data["my-scheduler-config.yaml"]
	check("in-cluster identity", strings.Contains(config, `kubeconfig: ""`), config)
	term := pod.Affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution[0].PodAffinityTerm
	check("anti-affinity", selects(t, term.LabelSelector, d.Spec.Template.Labels) && term.TopologyKey == "kubernetes.io/hostname", term)
}

func selects(t *testing.T, s *metav1.LabelSelector, labels map[string]string) bool {
	t.Helper()
	for k, v := range s.MatchLabels {
		if labels[k] != v {
			return false
		}
	}
	return len(s.MatchLabels) > 0
}

// TestSelector: a Deployment selects its own Pods and not those of another
// bundle in the same namespace, for which the two documented labels are not
// enough.
// It observes SCHED-16 of docs/requirements.md.
func TestSelector(t *testing.T) {
	one, two := v1alpha1.New(), v1alpha1.New()
	two.Scheduler.Name = "other"
	own := find[*appsv1.Deployment](t, objects(t, one), "my-scheduler").Spec
	others := find[*appsv1.Deployment](t, objects(t, two), "other").Spec
	if !selects(t, own.Selector, own.Template.Labels) {
		t.Errorf("%v does not select %v", own.Selector, own.Template.Labels)
	}
	if selects(t, own.Selector, others.Template.Labels) {
		t.Errorf("%v selects another scheduler's %v", own.Selector, others.Template.Labels)
	}
}

// TestDisruptionBudget selects the Pods of this scheduler and no other's in the
// same namespace: a Pod with two budgets cannot be evicted at all.
func TestDisruptionBudget(t *testing.T) {
	one, two := v1alpha1.New(), v1alpha1.New()
	two.Scheduler.Name = "other"
	budget := find[*policyv1.PodDisruptionBudget](t, objects(t, one), "my-scheduler")
	if budget.Spec.MaxUnavailable.IntValue() != 1 || budget.Spec.MinAvailable != nil {
		t.Errorf("budget %+v", budget.Spec)
	}
	own := find[*appsv1.Deployment](t, objects(t, one), "my-scheduler").Spec.Template.Labels
	others := find[*appsv1.Deployment](t, objects(t, two), "other").Spec.Template.Labels
	if !selects(t, budget.Spec.Selector, own) {
		t.Errorf("%v does not select %v", budget.Spec.Selector, own)
	}
	if selects(t, budget.Spec.Selector, others) {
		t.Errorf("%v selects another scheduler's %v", budget.Spec.Selector, others)
	}
}

// TestConfigurationChangeRollsOut: the Pod template changes with the
// configuration, and only with it.
func TestConfigurationChangeRollsOut(t *testing.T) {
	hash := func(change func(*v1alpha1.Bundle)) string {
		b := v1alpha1.New()
		change(b)
		return find[*appsv1.Deployment](t, objects(t, b), "my-scheduler").Spec.Template.Annotations["fairlead.dev/config-hash"]
	}
	base := hash(func(*v1alpha1.Bundle) {})
	if base == "" || base != hash(func(b *v1alpha1.Bundle) { b.Scheduler.Image = "other" }) {
		t.Error("the hash changes without the configuration")
	}
	if base == hash(func(b *v1alpha1.Bundle) { b.Scheduler.Parallelism = ptr.To[int32](8) }) {
		t.Error("a changed configuration does not roll out")
	}
}

// TestDisabled renders nothing.
func TestDisabled(t *testing.T) {
	b := v1alpha1.New()
	b.Scheduler.Enabled = ptr.To(false)
	if got := objects(t, b); len(got) > 0 {
		t.Errorf("%d objects", len(got))
	}
}

// TestEveryOwnFlagIsReserved: extraArgs must not be able to set what we set.
func TestEveryOwnFlagIsReserved(t *testing.T) {
	for _, f := range scheduler.OwnFlags(v1alpha1.New()) {
		b := v1alpha1.New()
		b.Scheduler.ExtraArgs = []v1alpha1.Argument{{Name: f.Name, Value: "x"}}
		if errs := scheduler.Validate(b); len(errs) == 0 {
			t.Errorf("extraArgs may set %s", f.Name)
		}
	}
	b := v1alpha1.New()
	b.Scheduler.ExtraArgs = []v1alpha1.Argument{{Name: "v", Value: "4"}}
	if errs := scheduler.Validate(b); len(errs) > 0 {
		t.Errorf("-v: %v", errs.ToAggregate())
	}
}

// TestWithoutLeaderElection: one replica that elects no leader has no right to a Lease, and
// its Deployment ends the old Pod before the new one starts, so that two never schedule at
// the same time.
// It observes SCHED-15 of docs/requirements.md.
// It also observes OLD-04 of docs/requirements.md.
func TestWithoutLeaderElection(t *testing.T) {
	b := &v1alpha1.Bundle{}
	b.Scheduler.LeaderElection.LeaderElect = ptr.To(false)
	all, err := scheduler.Objects(b)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range all {
		if o.GetName() == "my-scheduler-leader-election" {
			t.Errorf("there is a %T for the Lease", o)
		}
		d, ok := o.(*appsv1.Deployment)
		if !ok {
			continue
		}
		if *d.Spec.Replicas != 1 || d.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType || d.Spec.Strategy.RollingUpdate != nil {
			t.Errorf("%d replicas, strategy %+v; want 1, Recreate", *d.Spec.Replicas, d.Spec.Strategy)
		}
	}
	data, err := scheduler.Configuration(b, "")
	if err != nil {
		t.Fatal(err)
	}
	config := struct {
		LeaderElection struct{ LeaderElect *bool }
	}{}
	if err := yaml.Unmarshal(data, &config); err != nil {
		t.Fatal(err)
	}
	if elect := config.LeaderElection.LeaderElect; elect == nil || *elect {
		t.Errorf("leaderElect is not false in\n%s", data)
	}
}
