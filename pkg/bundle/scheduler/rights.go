// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	schedulerv1 "k8s.io/kube-scheduler/config/v1"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/rbac"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/scheduler/pluginargs"
	"github.com/fairlead-dev/fairlead/pkg/scheduler/profilecheck"
)

// rights binds the two system roles, and adds a role for the Lease and one for the
// additional rules of the enabled plugins. It binds the system roles and never
// copies them: their rules change with Kubernetes, and an object of the same name
// would replace them for the default scheduler too.
func rights(b *v1alpha1.Bundle, subject rbacv1.Subject) []component.Object {
	name, lease := b.Scheduler.Name, b.Scheduler.LeaderElection
	objects := []component.Object{
		rbac.ClusterRoleBinding(name+"-as-kube-scheduler", "system:kube-scheduler", subject),
		rbac.ClusterRoleBinding(name+"-as-volume-scheduler", "system:volume-scheduler", subject),
		rbac.RoleBinding(metav1.NamespaceSystem, name+"-extension-apiserver-authentication-reader",
			"extension-apiserver-authentication-reader", subject),
	}
	if ptr.Deref(lease.LeaderElect, true) {
		objects = append(objects, rbac.Role(lease.LeaseNamespace, name+"-leader-election",
			// A create request has no name yet, so it cannot be limited by one.
			rbacv1.PolicyRule{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"},
				Verbs: []string{"create"}},
			rbacv1.PolicyRule{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"},
				ResourceNames: []string{lease.LeaseName}, Verbs: []string{"get", "update", "list", "watch"}},
		), rbac.RoleBinding(lease.LeaseNamespace, name+"-leader-election", name+"-leader-election", subject))
	}
	if rules := PluginRules(b); len(rules) > 0 {
		objects = append(objects, rbac.ClusterRole(name+"-plugins", rules...),
			rbac.ClusterRoleBinding(name+"-plugins", name+"-plugins", subject))
	}
	return objects
}

// PluginRules are the rights that the enabled plugins of all profiles need beyond
// system:kube-scheduler and system:volume-scheduler. PolitePreemption,
// ForeignNominations and FailoverBarrier need none.
func PluginRules(b *v1alpha1.Bundle) []rbacv1.PolicyRule {
	return reachRules(Profiles(b.Defaulted()))
}

func reachRules(profiles []schedulerv1.KubeSchedulerProfile) []rbacv1.PolicyRule {
	var rules []rbacv1.PolicyRule
	if slices.ContainsFunc(profiles, reachesAutomatically) {
		for _, r := range []struct{ group, resource string }{
			{"admissionregistration.k8s.io", "mutatingwebhookconfigurations"},
			{"admissionregistration.k8s.io", "validatingwebhookconfigurations"},
			{"apiextensions.k8s.io", "customresourcedefinitions"},
			{"apiregistration.k8s.io", "apiservices"},
		} {
			rules = append(rules, rbacv1.PolicyRule{
				APIGroups: []string{r.group}, Resources: []string{r.resource}, Verbs: []string{"get", "list", "watch"},
			})
		}
	}
	return rules
}

// reachesAutomatically says whether a profile looks for the Services that the API
// server calls.
func reachesAutomatically(p schedulerv1.KubeSchedulerProfile) bool {
	if !profilecheck.Enables(&p, pluginargs.TunnelReach) {
		return false
	}
	args := &pluginargs.TunnelReachArgs{}
	for _, c := range p.PluginConfig {
		if c.Name != pluginargs.TunnelReach {
			continue
		}
		if err := pluginargs.DecodeExtension(c.Args, args); err != nil {
			return false // refused elsewhere
		}
	}
	args.Default()
	return ptr.Deref(args.Automatic, true)
}
