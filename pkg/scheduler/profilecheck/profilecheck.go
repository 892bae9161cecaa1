// SPDX-License-Identifier: Apache-2.0

// Package profilecheck rejects profiles that kube-scheduler would load but not apply as written: arguments for a
// plugin that is not enabled, plugins that the program does not have or that are listed where they have no effect,
// weights that invert a score, and invalid arguments of Fairlead's plugins and of NodeResourcesFit, which
// kube-scheduler's own validation does not check.
//
// The bundle checks profiles before anything is applied, and the scheduler checks them again when it starts. Start at
// [Check].
package profilecheck

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/version"
	schedulerv1 "k8s.io/kube-scheduler/config/v1"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/validation"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/pkg/scheduler/pluginargs"
)

// ErrNewer is returned for a scheduler that is newer than the API server.
var ErrNewer = errors.New("the scheduler is newer than the API server")

// Known says whether this release's scheduler has a plugin of this name.
func Known(plugin string) bool { return extensionPoints[plugin] != nil }

// Load decodes a scheduler's configuration as kube-scheduler does: strictly, and with its defaults.
func Load(data []byte) (*config.KubeSchedulerConfiguration, error) {
	obj, gvk, err := scheme.Codecs.UniversalDecoder().Decode(data, nil, nil)
	if runtime.IsNotRegisteredError(err) {
		meta := metav1.TypeMeta{}
		_ = yaml.Unmarshal(data, &meta) // the decoder has read it
		return nil, fmt.Errorf("read apiVersion %q, kind %q: this scheduler reads no other version than %s: write apiVersion: %[3]s, and compare the fields with https://kubernetes.io/docs/reference/config-api/kube-scheduler-config.v1/",
			meta.APIVersion, meta.Kind, schedulerv1.SchemeGroupVersion)
	}
	if err != nil {
		return nil, err
	}
	loaded, ok := obj.(*config.KubeSchedulerConfiguration)
	if !ok {
		return nil, fmt.Errorf("not a KubeSchedulerConfiguration but a %s", gvk)
	}
	// Validation looks at the version; conversion cleared it.
	loaded.APIVersion = gvk.GroupVersion().String()
	return loaded, nil
}

// CheckFile loads a configuration file and checks its profiles.
func CheckFile(data []byte, o Options) (*config.KubeSchedulerConfiguration, field.ErrorList, error) {
	loaded, err := Load(data)
	if err != nil {
		return nil, nil, err
	}
	var written schedulerv1.KubeSchedulerConfiguration
	if err := yaml.Unmarshal(data, &written); err != nil {
		return nil, nil, err
	}
	return loaded, Check(written.Profiles, loaded.Profiles, field.NewPath("profiles"), o), nil
}

// Options of Check.
type Options struct {
	// AnyPlugin admits plugins that this release's scheduler does not have, for custom images.
	AnyPlugin bool
}

// Check checks profiles as they were written, and as kube-scheduler has loaded and defaulted them: the same number in
// the same order. Errors are below p, the list of profiles.
func Check(written []schedulerv1.KubeSchedulerProfile, loaded []config.KubeSchedulerProfile, p *field.Path, o Options) field.ErrorList {
	var errs field.ErrorList
	for i := range written {
		if i < len(loaded) {
			errs = append(errs, check(&written[i], &loaded[i], p.Index(i), o)...)
		}
	}
	return errs
}

func check(written *schedulerv1.KubeSchedulerProfile, loaded *config.KubeSchedulerProfile, p *field.Path, o Options) field.ErrorList {
	errs := checkSets(written.Plugins, p.Child("plugins"), o)
	errs = append(errs, checkPoints(written.Plugins, loaded, p.Child("plugins"))...)
	enabled := EnabledPlugins(loaded)
	for i, c := range written.PluginConfig {
		at := p.Child("pluginConfig").Index(i)
		if !enabled.Has(c.Name) {
			errs = append(errs, field.Invalid(at.Child("name"), c.Name,
				"is not enabled in this profile, so its arguments would have no effect; enable it under plugins, or remove them"))
			continue
		}
		errs = append(errs, checkArgs(c.Name, loadedArgs(loaded, c.Name), at.Child("args"))...)
	}
	return errs
}

func checkArgs(plugin string, args runtime.Object, p *field.Path) field.ErrorList {
	if fit, ok := args.(*config.NodeResourcesFitArgs); ok {
		return fieldErrors(validation.ValidateNodeResourcesFitArgs(p, fit), p)
	}
	return pluginargs.Check(plugin, args, p)
}

func loadedArgs(profile *config.KubeSchedulerProfile, plugin string) runtime.Object {
	for _, c := range profile.PluginConfig {
		if c.Name == plugin {
			return c.Args
		}
	}
	return nil
}

// EnabledPlugins are the plugins that a loaded profile enables anywhere.
func EnabledPlugins(profile *config.KubeSchedulerProfile) sets.Set[string] {
	enabled := sets.New[string]()
	if profile.Plugins == nil {
		return enabled
	}
	for _, set := range append(slices.Collect(maps.Values(loadedPoints(profile.Plugins))), profile.Plugins.MultiPoint) {
		for _, plugin := range set.Enabled {
			enabled.Insert(plugin.Name)
		}
	}
	return enabled
}

// Enables says whether a profile, as it is written, enables a plugin that is not among kube-scheduler's defaults.
func Enables(profile *schedulerv1.KubeSchedulerProfile, plugin string) bool {
	if profile.Plugins == nil {
		return false
	}
	for _, s := range writtenSets(profile.Plugins) {
		if slices.ContainsFunc(s.set.Enabled, func(p schedulerv1.Plugin) bool { return p.Name == plugin }) {
			return true
		}
	}
	return false
}

type namedSet struct {
	name string
	set  schedulerv1.PluginSet
}

func writtenSets(p *schedulerv1.Plugins) []namedSet {
	return []namedSet{
		{"preEnqueue", p.PreEnqueue}, {"queueSort", p.QueueSort}, {"preFilter", p.PreFilter}, {"filter", p.Filter},
		{"postFilter", p.PostFilter}, {"preScore", p.PreScore}, {"score", p.Score}, {"reserve", p.Reserve},
		{"permit", p.Permit}, {"preBind", p.PreBind}, {"bind", p.Bind}, {"postBind", p.PostBind},
		{"multiPoint", p.MultiPoint}, {"placementGenerate", p.PlacementGenerate}, {"placementScore", p.PlacementScore},
	}
}

func checkSets(plugins *schedulerv1.Plugins, p *field.Path, o Options) field.ErrorList {
	if plugins == nil {
		return nil
	}
	var errs field.ErrorList
	for _, s := range writtenSets(plugins) {
		for i, plugin := range s.set.Enabled {
			at := p.Child(s.name, "enabled").Index(i)
			if plugin.Weight != nil && *plugin.Weight < 1 {
				errs = append(errs, field.Invalid(at.Child("weight"), *plugin.Weight,
					"must be at least 1: zero would mean 1, and less would prefer the worst nodes; to switch the plugin's score off, put it under score.disabled"))
			}
			if !o.AnyPlugin && !Known(plugin.Name) {
				errs = append(errs, field.NotFound(at.Child("name"), plugin.Name))
				errs[len(errs)-1].Detail = "this release's scheduler does not have this plugin; correct the name" + similar(plugin.Name) +
					", or name an image that has it"
			}
		}
	}
	return errs
}

// similar suggests a name that differs in case only.
func similar(name string) string {
	all := slices.Sorted(maps.Keys(extensionPoints))
	if i := slices.IndexFunc(all, func(known string) bool { return strings.EqualFold(known, name) }); i >= 0 {
		return " to " + all[i]
	}
	return ""
}

// fieldErrors takes an aggregate apart.
func fieldErrors(err error, p *field.Path) field.ErrorList {
	if err == nil {
		return nil
	}
	var aggregate utilerrors.Aggregate
	if !errors.As(err, &aggregate) {
		return field.ErrorList{field.Invalid(p, field.OmitValueType{}, err.Error())}
	}
	var errs field.ErrorList
	for _, err := range utilerrors.Flatten(aggregate).Errors() {
		var fe *field.Error
		if errors.As(err, &fe) {
			errs = append(errs, fe)
		} else {
			errs = append(errs, field.Invalid(p, field.OmitValueType{}, err.Error()))
		}
	}
	return errs
}

// CheckVersion refuses a scheduler whose minor version is above the API server's, as Kubernetes' version skew policy
// does. Versions are like v1.36.3; patch versions and build metadata do not count.
func CheckVersion(scheduler, apiServer string) error {
	ours, err := version.ParseGeneric(scheduler)
	if err != nil {
		return fmt.Errorf("the scheduler's version: %w", err)
	}
	theirs, err := version.ParseGeneric(apiServer)
	if err != nil {
		return fmt.Errorf("the API server's version: %w", err)
	}
	if ours.Major() > theirs.Major() || ours.Major() == theirs.Major() && ours.Minor() > theirs.Minor() {
		return fmt.Errorf("%w: %s and %s; Kubernetes supports schedulers of the API server's minor version and the one before: "+
			"upgrade the control plane first, or use a release of the scheduler for v%d.%d",
			ErrNewer, scheduler, apiServer, theirs.Major(), theirs.Minor())
	}
	return nil
}
