// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/scheduler/pluginargs"
	"github.com/fairlead-dev/fairlead/pkg/scheduler/profilecheck"
)

// pluginFields is what a bundle says of one of Fairlead's plugins.
type pluginFields struct {
	field, plugin string
	enabled       *bool
	// byDefault is the value of enabled if the bundle does not set it.
	byDefault bool
	args      pluginargs.Args
}

func pluginFieldsOf(p *v1alpha1.SchedulerPlugins) []pluginFields {
	return []pluginFields{
		{"tunnelReach", pluginargs.TunnelReach, p.TunnelReach.Enabled, false, &p.TunnelReach.TunnelReachArgs},
		{"politePreemption", pluginargs.PolitePreemption, p.PolitePreemption.Enabled, true, &p.PolitePreemption.PolitePreemptionArgs},
		{"foreignNominations", pluginargs.ForeignNominations, p.ForeignNominations.Enabled, true, &p.ForeignNominations.ForeignNominationsArgs},
		{"failoverBarrier", pluginargs.FailoverBarrier, p.FailoverBarrier.Enabled, true, &p.FailoverBarrier.FailoverBarrierArgs},
	}
}

// validateUnused refuses settings of plugins that reach no profile: they would have no effect without any message. A
// default value does not count as a setting, so a bundle with all defaults written out loads.
func validateUnused(b *v1alpha1.Bundle, p *field.Path) field.ErrorList {
	s := &b.Scheduler
	noBuiltIn := s.BuiltInProfiles == v1alpha1.BuiltInProfiles{} && len(s.MoreBuiltInProfiles) == 0
	var errs field.ErrorList
	for _, f := range pluginFieldsOf(&s.Plugins) {
		at, enabled := p.Child(f.field), ptr.Deref(f.enabled, f.byDefault)
		var why string
		switch {
		case noBuiltIn:
			why = "no built-in profile is rendered, and those under scheduler.profiles take nothing from here: " +
				"enable and configure the plugin in these, or add a profile under scheduler.builtInProfiles, or remove the field"
			errs = append(errs, unusedSwitch(s, f, enabled, why, at.Child("enabled"))...)
		case !enabled:
			why = "does nothing, as the plugin is not enabled: set " + at.Child("enabled").String() + " to true, or remove the field"
		default:
			continue
		}
		changed, err := changedArguments(f)
		if err != nil {
			return append(errs, field.InternalError(at, err))
		}
		for _, name := range changed {
			errs = append(errs, field.Forbidden(at.Child(name), why))
		}
	}
	return errs
}

// unusedSwitch checks enabled in a bundle without built-in profiles. It rejects true, except for a plugin that is
// enabled by default. It accepts false, unless one of the user's own profiles enables the plugin.
func unusedSwitch(s *v1alpha1.Scheduler, f pluginFields, enabled bool, why string, at *field.Path) field.ErrorList {
	if enabled && !f.byDefault {
		return field.ErrorList{field.Forbidden(at, why)}
	}
	if enabled || !f.byDefault {
		return nil
	}
	for i := range s.Profiles {
		if profilecheck.Enables(&s.Profiles[i], f.plugin) {
			return field.ErrorList{field.Invalid(at, false, fmt.Sprintf(
				"scheduler.profiles[%d] enables the plugin, and takes nothing from here: leave it out there, or remove this field", i))}
		}
	}
	return nil
}

// changedArguments are the names of the plugin's arguments that differ from the defaults, sorted.
func changedArguments(f pluginFields) ([]string, error) {
	unset := pluginargs.New(f.plugin)
	unset.Default()
	given, err := fieldsOf(f.args)
	if err != nil {
		return nil, err
	}
	usual, err := fieldsOf(unset)
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(given, func(name string, value json.RawMessage) bool { return bytes.Equal(usual[name], value) })
	return slices.Sorted(maps.Keys(given)), nil
}

func fieldsOf(args pluginargs.Args) (map[string]json.RawMessage, error) {
	data, err := json.Marshal(args)
	if err != nil {
		return nil, err
	}
	fields := map[string]json.RawMessage{}
	return fields, json.Unmarshal(data, &fields)
}
