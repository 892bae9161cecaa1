// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"flag"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/component-helpers/auth/rbac/validation"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac/bootstrappolicy"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/pkg/bundle/scheduler"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// bootstrap are the rules of the system roles that the bundle binds, as this Kubernetes brings them along.
func bootstrap(t *testing.T) map[string][]rbacv1.PolicyRule {
	t.Helper()
	rules := map[string][]rbacv1.PolicyRule{}
	for _, role := range bootstrappolicy.ClusterRoles() {
		if role.Name == "system:kube-scheduler" || role.Name == "system:volume-scheduler" {
			rules[role.Name] = role.Rules
		}
	}
	if len(rules) != 2 {
		t.Fatalf("found %d of the two system roles", len(rules))
	}
	return rules
}

// TestBootstrapPolicy fails if another Kubernetes version adds rules to system:kube-scheduler or
// system:volume-scheduler, or removes rules from them. The rules that the bundle adds must then be reviewed.
// It observes SCHED-50 and SCHED-51 of docs/requirements.md.
func TestBootstrapPolicy(t *testing.T) {
	const golden = "testdata/bootstrap-policy.yaml"
	got, err := yaml.Marshal(bootstrap(t))
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("the system roles have changed (-before +now); see whether PluginRules is still right, then run with -update:\n%s", diff)
	}
}

// TestPluginRulesAreDeltas: what the bundle adds is not in the system roles already, and is only there when a plugin
// that needs it is enabled.
func TestPluginRulesAreDeltas(t *testing.T) {
	var system []rbacv1.PolicyRule
	for _, rules := range bootstrap(t) {
		system = append(system, rules...)
	}
	on, off := true, false
	with := func(change func(*v1alpha1.Scheduler)) []rbacv1.PolicyRule {
		b := &v1alpha1.Bundle{}
		b.Scheduler.BuiltInProfiles.Spread = &v1alpha1.SpreadProfile{}
		change(&b.Scheduler)
		return scheduler.PluginRules(b)
	}
	if rules := with(func(*v1alpha1.Scheduler) {}); len(rules) > 0 {
		t.Errorf("without TunnelReach: %v", rules)
	}
	if rules := with(func(s *v1alpha1.Scheduler) {
		s.Plugins.TunnelReach.Enabled, s.Plugins.TunnelReach.Automatic = &on, &off
	}); len(rules) > 0 {
		t.Errorf("with labels alone: %v", rules)
	}
	rules := with(func(s *v1alpha1.Scheduler) { s.Plugins.TunnelReach.Enabled = &on })
	if len(rules) != 4 {
		t.Errorf("%d rules", len(rules))
	}
	for _, rule := range rules {
		if covered, _ := validation.Covers(system, []rbacv1.PolicyRule{rule}); covered {
			t.Errorf("%v is in the system roles", rule)
		}
		if covered, _ := validation.Covers([]rbacv1.PolicyRule{{APIGroups: rule.APIGroups, Resources: rule.Resources, Verbs: []string{"get", "list", "watch"}}}, []rbacv1.PolicyRule{rule}); !covered {
			t.Errorf("%v does more than read", rule)
		}
	}
}
