// SPDX-License-Identifier: Apache-2.0

package profilecheck

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	schedulerv1 "k8s.io/kube-scheduler/config/v1"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"github.com/fairlead-dev/fairlead/pkg/scheduler/pluginargs"
)

// extensionPoints lists the extension points that each plugin implements, by the names of the sets in a profile.
// Importing the plugins themselves would link all of kube-scheduler into every program that checks a profile; a test
// compares the table with the plugins.
var extensionPoints = map[string][]string{
	names.DefaultBinder:                   {"bind"},
	names.DefaultPreemption:               {"postFilter", "preEnqueue"},
	names.DynamicResources:                {"filter", "postFilter", "preBind", "preEnqueue", "preFilter", "reserve", "score"},
	names.GangScheduling:                  {"permit", "preEnqueue"},
	names.ImageLocality:                   {"score"},
	names.InterPodAffinity:                {"filter", "preFilter", "preScore", "score"},
	names.NodeAffinity:                    {"filter", "preFilter", "preScore", "score"},
	names.NodeDeclaredFeatures:            {"filter", "preFilter"},
	names.NodeName:                        {"filter"},
	names.NodePorts:                       {"filter", "preFilter"},
	names.NodeResourcesBalancedAllocation: {"preScore", "score"},
	names.NodeResourcesFit:                {"filter", "placementScore", "preFilter", "preScore", "score"},
	names.NodeUnschedulable:               {"filter"},
	names.NodeVolumeLimits:                {"filter", "preFilter"},
	names.PodGroupPodsCount:               {"placementScore"},
	names.PodTopologySpread:               {"filter", "preFilter", "preScore", "score"},
	names.PrioritySort:                    {"queueSort"},
	names.SchedulingGates:                 {"preEnqueue"},
	names.TaintToleration:                 {"filter", "preScore", "score"},
	names.TopologyPlacementGenerator:      {"placementGenerate"},
	names.VolumeBinding:                   {"filter", "preBind", "preFilter", "preScore", "reserve", "score"},
	names.VolumeRestrictions:              {"filter", "preFilter"},
	names.VolumeZone:                      {"filter", "preFilter"},

	pluginargs.FailoverBarrier:    {"preBind", "preFilter"},
	pluginargs.ForeignNominations: {"filter", "preFilter"},
	pluginargs.PolitePreemption:   {"postFilter", "preEnqueue"},
	pluginargs.TunnelReach:        {"filter", "postBind", "preFilter", "preScore", "score"},
}

// optional are the extension points that a plugin of Fairlead's may do without; without any other it is there and does
// nothing. With mode Require TunnelReach needs no score.
var optional = map[string][]string{pluginargs.TunnelReach: {"postBind", "preScore", "score"}}

// ExtensionPoints returns the sets of a profile in which a plugin may be listed, other than multiPoint; none for an
// unknown plugin.
func ExtensionPoints(plugin string) []string { return slices.Clone(extensionPoints[plugin]) }

// checkPoints refuses what kube-scheduler refuses only when it makes the profile's plugins, and plugins that are
// enabled in part.
func checkPoints(written *schedulerv1.Plugins, loaded *config.KubeSchedulerProfile, p *field.Path) field.ErrorList {
	var errs field.ErrorList
	if written != nil {
		for _, s := range writtenSets(written) {
			errs = append(errs, checkSet(s, p.Child(s.name, "enabled"))...)
		}
	}
	if len(errs) > 0 || loaded.Plugins == nil {
		return errs
	}
	points := effective(loaded)
	unknown := slices.ContainsFunc(loaded.Plugins.MultiPoint.Enabled, func(e config.Plugin) bool { return extensionPoints[e.Name] == nil })
	if n := points["queueSort"].Len(); n != 1 && !unknown {
		errs = append(errs, field.Invalid(p.Child("queueSort"), field.OmitValueType{},
			fmt.Sprintf("a profile needs one plugin that sorts the queue, and this one has %d; leave %s enabled", n, names.PrioritySort)))
	}
	if points["bind"].Len() == 0 && !unknown {
		errs = append(errs, field.Required(p.Child("bind"),
			"no plugin binds Pods to nodes; leave "+names.DefaultBinder+" enabled"))
	}
	if points["postFilter"].HasAll(names.DefaultPreemption, pluginargs.PolitePreemption) {
		errs = append(errs, field.Invalid(p.Child("postFilter"), pluginargs.PolitePreemption,
			names.DefaultPreemption+" is enabled as well and would evict other schedulers' Pods; disable it under multiPoint.disabled"))
	}
	errs = append(errs, checkLast(loaded, p.Child("preBind"))...)
	return append(errs, checkWhole(points, p)...)
}

// checkLast rejects a profile in which another PreBind plugin runs after FailoverBarrier, which would not check the Pod
// again after it.
func checkLast(loaded *config.KubeSchedulerProfile, p *field.Path) field.ErrorList {
	order := expand("preBind", loaded.Plugins.PreBind, loaded.Plugins.MultiPoint)
	at := slices.Index(order, pluginargs.FailoverBarrier)
	if at < 0 || at == len(order)-1 {
		return nil
	}
	return field.ErrorList{field.Invalid(p, pluginargs.FailoverBarrier, fmt.Sprintf(
		"runs before %s and would not look again after that; enable both under multiPoint only, %s last", strings.Join(order[at+1:], ", "), pluginargs.FailoverBarrier))}
}

// checkSet checks one set as it is written.
func checkSet(s namedSet, p *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := sets.New[string]()
	for i, plugin := range s.set.Enabled {
		at := p.Index(i).Child("name")
		if seen.Has(plugin.Name) {
			errs = append(errs, field.Duplicate(at, plugin.Name))
		}
		seen.Insert(plugin.Name)
		points := extensionPoints[plugin.Name]
		if s.name != "multiPoint" && points != nil && !slices.Contains(points, s.name) {
			errs = append(errs, field.Invalid(at, plugin.Name, fmt.Sprintf(
				"does nothing at this extension point; enable it under multiPoint, or under %s", strings.Join(points, ", "))))
		}
	}
	return errs
}

// checkWhole refuses plugins that lack a part.
func checkWhole(points map[string]sets.Set[string], p *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, plugin := range pluginargs.Names() {
		has := func(point string) bool { return points[point].Has(plugin) }
		lacks := slices.DeleteFunc(ExtensionPoints(plugin), func(point string) bool {
			return has(point) || slices.Contains(optional[plugin], point)
		})
		if len(lacks) > 0 && slices.ContainsFunc(extensionPoints[plugin], has) {
			errs = append(errs, field.Invalid(p.Child(lacks[0]), plugin, fmt.Sprintf(
				"is enabled in part only and would do nothing without %s; enable it under multiPoint", strings.Join(lacks, " and "))))
		}
	}
	return errs
}

// effective are the plugins at each extension point, after multiPoint is expanded as kube-scheduler does it.
func effective(profile *config.KubeSchedulerProfile) map[string]sets.Set[string] {
	out := map[string]sets.Set[string]{}
	for point, set := range loadedPoints(profile.Plugins) {
		out[point] = sets.New(expand(point, set, profile.Plugins.MultiPoint)...)
	}
	return out
}

// expand lists the plugins at an extension point in the order in which kube-scheduler runs them: those that its own set
// and multiPoint have, then those that only multiPoint has, then the rest of its own.
func expand(point string, own, multi config.PluginSet) []string {
	off, everywhere, named := sets.New[string](), sets.New[string](), sets.New[string]()
	for _, plugin := range own.Disabled {
		off.Insert(plugin.Name)
	}
	for _, plugin := range own.Enabled {
		named.Insert(plugin.Name)
	}
	var first, second, third []string
	for _, plugin := range multi.Enabled {
		if !slices.Contains(extensionPoints[plugin.Name], point) || off.HasAny(plugin.Name, "*") {
			continue
		}
		everywhere.Insert(plugin.Name)
		if !named.Has(plugin.Name) {
			second = append(second, plugin.Name)
		}
	}
	for _, plugin := range own.Enabled {
		if everywhere.Has(plugin.Name) {
			first = append(first, plugin.Name)
		} else {
			third = append(third, plugin.Name)
		}
	}
	return slices.Concat(first, second, third)
}

func loadedPoints(p *config.Plugins) map[string]config.PluginSet {
	return map[string]config.PluginSet{
		"preEnqueue": p.PreEnqueue, "queueSort": p.QueueSort, "preFilter": p.PreFilter, "filter": p.Filter,
		"postFilter": p.PostFilter, "preScore": p.PreScore, "score": p.Score, "reserve": p.Reserve,
		"permit": p.Permit, "preBind": p.PreBind, "bind": p.Bind, "postBind": p.PostBind,
		"placementGenerate": p.PlacementGenerate, "placementScore": p.PlacementScore,
	}
}
