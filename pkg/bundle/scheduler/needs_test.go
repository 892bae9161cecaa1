// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/component-helpers/auth/rbac/validation"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle/scheduler"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// unneeded are rights of the system roles that a scheduler does without.
var unneeded = []rbacv1.PolicyRule{
	// Informers list and watch, and nothing gets these objects.
	allow("get", "", "namespaces", "nodes", "persistentvolumeclaims", "persistentvolumes", "pods", "replicationcontrollers", "services"),
	allow("get", "apps", "replicasets", "statefulsets"), allow("get", "policy", "poddisruptionbudgets"), allow("get", "scheduling.k8s.io", "podgroups"),
	allow("get", "storage.k8s.io", "csidrivers", "csinodes", "csistoragecapacities", "storageclasses", "volumeattachments"),
	allow("get", "resource.k8s.io", "deviceclasses", "devicetaintrules", "resourceclaims/status", "resourceslices"),
	// The second scheduler has rights to a Lease of its own, and does not use coordinated leader election.
	allow("*", "coordination.k8s.io", "leasecandidates", "leases"),
	// These are for requests to its metrics.
	allow("create", "authentication.k8s.io", "tokenreviews"), allow("create", "authorization.k8s.io", "subjectaccessreviews"),
	// It patches or updates objects, not both, and uses the newer of two forms.
	allow("patch", "", "persistentvolumeclaims", "persistentvolumes"), allow("update", "", "pods/status"), allow("patch", "resource.k8s.io", "resourceclaims"),
	allow("update", "scheduling.k8s.io", "podgroups/status"),
	allow("update", "events.k8s.io", "events"), allow("*", "", "events"), allow("*", "extensions", "replicasets"), allow("create", "", "bindings"),
	// This one matters only with the admission plugin OwnerReferencesPermissionEnforcement, which is off by default.
	allow("update", "", "pods/finalizers"),
	// Nothing reads a status alone.
	allow("list", "resource.k8s.io", "resourceclaims/status"), allow("watch", "resource.k8s.io", "resourceclaims/status"),
}

func allow(verb, group string, resources ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: []string{verb}}
}

// TestNeeds: what a scheduler with all plugins needs is what the system roles and the bundle's own role give, and all of it but what [unneeded]
// lists. With another Kubernetes version that adds informers to kube-scheduler, the first thing to change are its roles.
func TestNeeds(t *testing.T) {
	for name, gates := range map[string]map[string]bool{
		"default gates": {},
		"more gates":    {string(features.DRADeviceTaintRules): true, string(features.GenericWorkload): true},
	} {
		t.Run(name, func(t *testing.T) {
			set := featuregatetesting.FeatureOverrides{}
			for gate, on := range gates {
				set[featuregate.Feature(gate)] = on
			}
			featuregatetesting.SetFeatureGatesDuringTest(t, utilfeature.DefaultFeatureGate, set)
			b := v1alpha1.New()
			b.Scheduler.Plugins.TunnelReach.Enabled = ptr.To(true)
			b = b.Defaulted()
			configuration, err := scheduler.Configuration(b, "")
			if err != nil {
				t.Fatal(err)
			}
			needs, err := scheduler.Needs(configuration, gates, "")
			if err != nil {
				t.Fatal(err)
			}
			if _, missing := validation.Covers(append(bootstrapRules(t), scheduler.PluginRules(b)...), needs); len(missing) > 0 {
				t.Errorf("no role gives %v", missing)
			}
			if _, more := validation.Covers(slices.Concat(needs, unneeded), bootstrapRules(t)); len(more) > 0 {
				t.Errorf("the system roles give %v; is it needed?", more)
			}
			for _, rule := range unneeded {
				if ok, _ := validation.Covers(needs, []rbacv1.PolicyRule{rule}); ok {
					t.Errorf("%v is needed", rule)
				}
			}
		})
	}
}

func bootstrapRules(t *testing.T) (all []rbacv1.PolicyRule) {
	t.Helper()
	for _, rules := range bootstrap(t) {
		all = append(all, rules...)
	}
	return all
}

// TestNeedsOfSpread: without constraints PodTopologySpread has no informers of its own.
func TestNeedsOfSpread(t *testing.T) {
	const head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles: [{pluginConfig: [{name: PodTopologySpread, args: {defaultingType: List"
	for args, want := range map[string]bool{
		"}}]}]": false,
		", defaultConstraints: [{maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway}]}}]}]": true,
	} {
		needs, err := scheduler.Needs([]byte(head+args), nil, "")
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := validation.Covers(needs, []rbacv1.PolicyRule{allow("watch", "apps", "replicasets")}); got != want {
			t.Errorf("%s: it needs ReplicaSets: %v", args, got)
		}
	}
	if _, err := scheduler.Needs([]byte("kind: x"), nil, ""); err == nil {
		t.Error("a configuration of another kind was read")
	}
}
