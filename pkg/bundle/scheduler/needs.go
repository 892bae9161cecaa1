// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"fmt"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/version"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
	schedulerv1 "k8s.io/kube-scheduler/config/v1"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/pkg/scheduler/pluginargs"
	"github.com/fairlead-dev/fairlead/pkg/scheduler/profilecheck"
)

// need is a right of a scheduler.
type need struct {
	verbs, group, resources string
	// plugins are those that need it, if one of them is enabled in any profile; with none, every scheduler needs it.
	plugins []string
	// gate must be on, if there is one.
	gate featuregate.Feature
	// since is the first version of kube-scheduler that needs it, if older ones are in use that do not.
	since string
}

// needs has what each informer lists and watches and what the scheduler writes, by the plugins that need it. Without a right of an informer
// the scheduler waits for its caches for ever. What shows metrics takes further rights and is not here: a scheduler works without. Tests
// compare the table with kube-scheduler's informers, and with the rules of system:kube-scheduler and system:volume-scheduler.
var needs = []need{
	{verbs: "list watch", resources: "namespaces nodes pods"},
	{verbs: "list watch", group: "storage.k8s.io", resources: "csinodes"},
	{verbs: "create", resources: "pods/binding", plugins: []string{names.DefaultBinder}},
	{verbs: "patch", resources: "pods/status"},
	{verbs: "create patch", group: "events.k8s.io", resources: "events"},

	{verbs: "list watch", group: "policy", resources: "poddisruptionbudgets", plugins: preemption},
	{verbs: "delete", resources: "pods", plugins: preemption},

	{verbs: "list watch", resources: "services replicationcontrollers", plugins: []string{names.PodTopologySpread}},
	{verbs: "list watch", group: "apps", resources: "replicasets statefulsets", plugins: []string{names.PodTopologySpread}},

	{verbs: "list watch", resources: "persistentvolumeclaims", plugins: append(volumes, names.VolumeRestrictions, pluginargs.ForeignNominations)},
	{verbs: "list watch", resources: "persistentvolumes", plugins: volumes},
	{verbs: "list watch", group: "storage.k8s.io", resources: "storageclasses", plugins: volumes},
	{verbs: "list watch", group: "storage.k8s.io", resources: "csidrivers", plugins: []string{names.NodeVolumeLimits, names.VolumeBinding}},
	{verbs: "list watch", group: "storage.k8s.io", resources: "volumeattachments", plugins: []string{names.NodeVolumeLimits, pluginargs.ForeignNominations}, since: "1.32"},
	{verbs: "list watch", group: "storage.k8s.io", resources: "csistoragecapacities", plugins: []string{names.VolumeBinding}},
	{verbs: "update", resources: "persistentvolumeclaims persistentvolumes", plugins: []string{names.VolumeBinding}},

	// Kube-scheduler has these informers even if no profile enables the plugin.
	{verbs: "list watch", group: "resource.k8s.io", resources: "deviceclasses resourceclaims resourceslices", gate: features.DynamicResourceAllocation},
	{verbs: "list watch", group: "resource.k8s.io", resources: "devicetaintrules", gate: features.DRADeviceTaintRules},
	{verbs: "get update", group: "resource.k8s.io", resources: "resourceclaims", plugins: claims, gate: features.DynamicResourceAllocation},
	{verbs: "patch update", group: "resource.k8s.io", resources: "resourceclaims/status", plugins: claims, gate: features.DynamicResourceAllocation},
	{verbs: "patch update", group: "resource.k8s.io", resources: "resourceclaims/binding", plugins: claims, gate: features.DRAResourceClaimGranularStatusAuthorization},
	{verbs: "create delete", group: "resource.k8s.io", resources: "resourceclaims", plugins: claims, gate: features.DRAExtendedResource},

	{verbs: "list watch", group: "scheduling.k8s.io", resources: "podgroups", gate: features.GenericWorkload},
	{verbs: "list watch", group: "scheduling.k8s.io", resources: "podgroups", plugins: []string{names.GangScheduling, names.TopologyPlacementGenerator}},
	{verbs: "patch", group: "scheduling.k8s.io", resources: "podgroups/status", gate: features.GenericWorkload},
}

var (
	preemption = []string{names.DefaultPreemption, pluginargs.PolitePreemption}
	volumes    = []string{names.NodeVolumeLimits, names.VolumeBinding, names.VolumeZone}
	claims     = []string{names.DynamicResources}
)

// rule returns the need as a rule of RBAC.
func (n need) rule() rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{n.group}, Resources: strings.Fields(n.resources), Verbs: strings.Fields(n.verbs)}
}

// Needs are the rights that a scheduler with this configuration file needs to start and to bind Pods, apart from those to its Lease. The
// gates are those that its command line sets, and kubernetes is its version, such as v1.36.3; "" is this release's.
func Needs(configuration []byte, gates map[string]bool, kubernetes string) ([]rbacv1.PolicyRule, error) {
	loaded, err := profilecheck.Load(configuration)
	if err != nil {
		return nil, fmt.Errorf("read the scheduler's configuration: %w", err)
	}
	var written schedulerv1.KubeSchedulerConfiguration
	if err := yaml.Unmarshal(configuration, &written); err != nil {
		return nil, fmt.Errorf("read the scheduler's configuration: %w", err)
	}
	enabled := sets.New[string]()
	for i := range loaded.Profiles {
		enabled = enabled.Union(needy(&loaded.Profiles[i]))
	}
	on := gatesAt(gates, kubernetes)
	built, err := version.ParseGeneric(kubernetes)
	old := func(since string) bool {
		return err == nil && since != "" && built.LessThan(version.MustParseGeneric(since))
	}
	var rules []rbacv1.PolicyRule
	for _, n := range needs {
		if (len(n.plugins) == 0 || enabled.HasAny(n.plugins...)) && (n.gate == "" || on.Enabled(n.gate)) && !old(n.since) {
			rules = append(rules, n.rule())
		}
	}
	if reach := reachRules(written.Profiles); len(reach) > 0 {
		rules = append(rules, need{verbs: "list watch", resources: "services"}.rule())
		for _, r := range reach {
			r.Verbs = []string{"list", "watch"}
			rules = append(rules, r)
		}
	}
	return rules, nil
}

// needy are the enabled plugins of a profile, without one whose arguments turn its informers off.
func needy(profile *config.KubeSchedulerProfile) sets.Set[string] {
	enabled := profilecheck.EnabledPlugins(profile)
	for _, c := range profile.PluginConfig {
		if args, ok := c.Args.(*config.PodTopologySpreadArgs); ok && args.DefaultingType == config.ListDefaulting && len(args.DefaultConstraints) == 0 {
			enabled.Delete(names.PodTopologySpread)
		}
	}
	return enabled
}

// gatesAt are the feature gates of a kube-scheduler of this or an older version. Gates that this release does not know, or that are invalid
// in that version, leave all at their defaults.
func gatesAt(gates map[string]bool, kubernetes string) featuregate.FeatureGate {
	registry := utilfeature.DefaultMutableFeatureGate.DeepCopy()
	if v, err := version.ParseGeneric(kubernetes); err == nil {
		if v = version.MajorMinor(v.Major(), v.Minor()); v.LessThan(registry.EmulationVersion()) {
			_ = registry.SetEmulationVersion(v)
		}
	}
	_ = registry.SetFromMap(gates)
	return registry
}
