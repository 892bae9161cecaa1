// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	schedulerv1 "k8s.io/kube-scheduler/config/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/scheduler/pluginargs"
)

// reachWeight of TunnelReach in the built-in profiles: all other scores of a profile together seldom differ by more
// between two nodes, so an agent counts more than small differences in free resources.
const reachWeight int32 = 10

// Profiles are all profiles of a defaulted bundle: the user's own as they are, then the built-in ones.
// docs/scheduler-profiles.md says why each sets what it sets.
func Profiles(b *v1alpha1.Bundle) []schedulerv1.KubeSchedulerProfile {
	s := &b.Scheduler
	var profiles []schedulerv1.KubeSchedulerProfile
	for i := range s.Profiles {
		profiles = append(profiles, *s.Profiles[i].DeepCopy())
	}
	for _, b := range append([]v1alpha1.BuiltInProfiles{s.BuiltInProfiles}, s.MoreBuiltInProfiles...) {
		profiles = append(profiles, builtIns(s, b)...)
	}
	partition(s.Partition, profiles)
	return profiles
}

func builtIns(s *v1alpha1.Scheduler, b v1alpha1.BuiltInProfiles) (profiles []schedulerv1.KubeSchedulerProfile) {
	if p := b.Standard; p != nil {
		profiles = append(profiles, builtIn(s, p.SchedulerName, nil, settings{}))
	}
	if p := b.Binpack; p != nil {
		profiles = append(profiles, builtIn(s, p.SchedulerName, p.PercentageOfNodesToScore, binpack(p)))
	}
	if p := b.Spread; p != nil {
		profiles = append(profiles, builtIn(s, p.SchedulerName, p.PercentageOfNodesToScore, spread(p)))
	}
	if p := b.Batch; p != nil {
		profiles = append(profiles, builtIn(s, p.SchedulerName, p.PercentageOfNodesToScore, batch(p)))
	}
	return profiles
}

// settings are what tells one built-in profile from another.
type settings struct {
	// weights of plugins that have another one than by default.
	weights []schedulerv1.Plugin
	// noScore are plugins that filter but do not score.
	noScore []string
	config  []schedulerv1.PluginConfig
}

func builtIn(s *v1alpha1.Scheduler, name string, percentage *int32, own settings) schedulerv1.KubeSchedulerProfile {
	plugins := &schedulerv1.Plugins{Score: schedulerv1.PluginSet{Enabled: own.weights}}
	for _, plugin := range own.noScore {
		plugins.Score.Disabled = append(plugins.Score.Disabled, schedulerv1.Plugin{Name: plugin})
		if plugin == names.NodeResourcesBalancedAllocation { // what it prepares would be for nothing
			plugins.PreScore.Disabled = append(plugins.PreScore.Disabled, schedulerv1.Plugin{Name: plugin})
		}
	}
	profile := schedulerv1.KubeSchedulerProfile{
		SchedulerName: &name, PercentageOfNodesToScore: percentage, Plugins: plugins, PluginConfig: own.config,
	}
	addOwnPlugins(s, &profile)
	return profile
}

// addOwnPlugins enables Fairlead's plugins in a built-in profile.
func addOwnPlugins(s *v1alpha1.Scheduler, profile *schedulerv1.KubeSchedulerProfile) {
	points := &profile.Plugins.MultiPoint
	enable := func(plugin string, args runtime.Object) {
		entry := schedulerv1.Plugin{Name: plugin}
		if plugin == pluginargs.TunnelReach {
			entry.Weight = ptr.To(reachWeight)
		}
		points.Enabled = append(points.Enabled, entry)
		profile.PluginConfig = append(profile.PluginConfig, pluginConfig(plugin, args))
	}
	p := &s.Plugins
	if ptr.Deref(p.FailoverBarrier.Enabled, true) {
		enable(pluginargs.FailoverBarrier, &p.FailoverBarrier.FailoverBarrierArgs)
	}
	if ptr.Deref(p.ForeignNominations.Enabled, true) {
		enable(pluginargs.ForeignNominations, &p.ForeignNominations.ForeignNominationsArgs)
	}
	if ptr.Deref(p.PolitePreemption.Enabled, true) {
		points.Disabled = append(points.Disabled, schedulerv1.Plugin{Name: names.DefaultPreemption})
		args := *p.PolitePreemption.PolitePreemptionArgs.DeepCopy()
		args.Evict = evictable(s, ptr.Deref(profile.SchedulerName, ""))
		enable(pluginargs.PolitePreemption, &args)
	}
	if ptr.Deref(p.TunnelReach.Enabled, false) {
		enable(pluginargs.TunnelReach, &p.TunnelReach.TunnelReachArgs)
	}
}

// binpack leaves out what would keep nodes apart: balance, image locality, and the spreading that kube-scheduler adds
// to Pods that say nothing of it.
func binpack(p *v1alpha1.BinpackProfile) settings {
	return settings{
		weights: []schedulerv1.Plugin{{Name: names.NodeResourcesFit, Weight: p.Weight}},
		noScore: []string{names.NodeResourcesBalancedAllocation, names.ImageLocality},
		config: []schedulerv1.PluginConfig{
			fit(schedulerv1.MostAllocated, p.Resources),
			noDefaultSpreading(), ownAffinityOnly(),
		},
	}
}

func spread(p *v1alpha1.SpreadProfile) settings {
	args := &schedulerv1.PodTopologySpreadArgs{DefaultingType: schedulerv1.SystemDefaulting}
	if len(p.TopologyKeys) > 0 {
		args.DefaultingType = schedulerv1.ListDefaulting
		for _, key := range p.TopologyKeys {
			args.DefaultConstraints = append(args.DefaultConstraints, corev1.TopologySpreadConstraint{
				TopologyKey: key, MaxSkew: ptr.Deref(p.MaxSkew, 1), WhenUnsatisfiable: corev1.ScheduleAnyway,
			})
		}
	}
	return settings{
		weights: []schedulerv1.Plugin{{Name: names.PodTopologySpread, Weight: p.Weight}},
		config:  []schedulerv1.PluginConfig{pluginConfig(names.PodTopologySpread, args)},
	}
}

// batch leaves out what makes a Pod's placement depend on other Pods: with that, no Pod can be signed, and
// OpportunisticBatching gives no hints.
func batch(p *v1alpha1.BatchProfile) settings {
	strategy := schedulerv1.MostAllocated
	if p.Placement == v1alpha1.BatchSpread {
		strategy = schedulerv1.LeastAllocated
	}
	return settings{
		noScore: []string{names.NodeResourcesBalancedAllocation, names.ImageLocality},
		config: []schedulerv1.PluginConfig{
			fit(strategy, []schedulerv1.ResourceSpec{
				{Name: string(corev1.ResourceCPU), Weight: 1}, {Name: string(corev1.ResourceMemory), Weight: 1},
			}),
			noDefaultSpreading(), ownAffinityOnly(),
		},
	}
}

func fit(strategy schedulerv1.ScoringStrategyType, resources []schedulerv1.ResourceSpec) schedulerv1.PluginConfig {
	return pluginConfig(names.NodeResourcesFit, &schedulerv1.NodeResourcesFitArgs{
		ScoringStrategy: &schedulerv1.ScoringStrategy{Type: strategy, Resources: resources},
	})
}

// noDefaultSpreading spreads only Pods that ask for it.
func noDefaultSpreading() schedulerv1.PluginConfig {
	return pluginConfig(names.PodTopologySpread, &schedulerv1.PodTopologySpreadArgs{DefaultingType: schedulerv1.ListDefaulting})
}

// ownAffinityOnly ignores the preferred affinity of other Pods, so Pods with different labels can count as equal.
func ownAffinityOnly() schedulerv1.PluginConfig {
	return pluginConfig(names.InterPodAffinity, &schedulerv1.InterPodAffinityArgs{
		HardPodAffinityWeight: ptr.To[int32](1), IgnorePreferredTermsOfExistingPods: true,
	})
}

// evictable returns the schedulers whose Pods a built-in profile may evict: the other profiles of the bundle, and
// those that the bundle names.
func evictable(s *v1alpha1.Scheduler, self string) []string {
	given := s.Plugins.PolitePreemption.Evict
	if len(given) == 1 && given[0] == pluginargs.AnyScheduler {
		return given
	}
	var list []string
	seen := map[string]bool{self: true}
	for _, name := range append(s.ProfileNames(), given...) {
		if !seen[name] {
			seen[name] = true
			list = append(list, name)
		}
	}
	return list
}

// pluginConfig carries typed arguments; they are encoded with the file.
func pluginConfig(plugin string, args runtime.Object) schedulerv1.PluginConfig {
	return schedulerv1.PluginConfig{Name: plugin, Args: runtime.RawExtension{Object: args}}
}
