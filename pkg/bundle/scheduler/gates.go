// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
	"k8s.io/kubernetes/pkg/features" // registers the gates that kube-scheduler knows

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/scheduler/pluginargs"
	"github.com/fairlead-dev/fairlead/pkg/scheduler/profilecheck"
)

// validateFeatureGates sets the gates on a copy of Kubernetes' own registry, all at once as kube-scheduler does,
// because some gates depend on others. It rejects gates that would keep a profile from working, also if AllAlpha or
// AllBeta sets them.
func validateFeatureGates(b *v1alpha1.Bundle, p *field.Path) field.ErrorList {
	gates := gatesOf(b)
	registry, err := withGates(gates)
	if err != nil {
		return field.ErrorList{gateError(gates, p, err)}
	}
	var errs field.ErrorList
	if registry.Enabled(features.WorkloadAwarePreemption) && usesPolitePreemption(b) {
		errs = append(errs, field.Forbidden(p, fmt.Sprintf(
			"%s is on with them, and %s does not reach it: set %s: false, or take the plugin out of the profiles",
			features.WorkloadAwarePreemption, pluginargs.PolitePreemption, features.WorkloadAwarePreemption)))
	}
	if batch := b.Scheduler.BuiltInProfiles.Batch; batch != nil && !registry.Enabled(features.OpportunisticBatching) {
		errs = append(errs, field.Forbidden(p, fmt.Sprintf(
			"%s is off with them, and the batch profile is made for it: leave it on, or remove scheduler.builtInProfiles.batch",
			features.OpportunisticBatching)))
	}
	return errs
}

func usesPolitePreemption(b *v1alpha1.Bundle) bool {
	profiles := Profiles(b)
	for i := range profiles {
		if profilecheck.Enables(&profiles[i], pluginargs.PolitePreemption) {
			return true
		}
	}
	return false
}

func withGates(gates map[string]bool) (featuregate.MutableFeatureGate, error) {
	registry := utilfeature.DefaultFeatureGate.DeepCopy().(featuregate.MutableFeatureGate) //nolint:forcetypeassert // it is one
	return registry, registry.SetFromMap(gates)
}

// gateError reports the error at the gate without which the others are valid, if there is one.
func gateError(gates map[string]bool, p *field.Path, err error) *field.Error {
	for _, name := range slices.Sorted(maps.Keys(gates)) {
		others := maps.Clone(gates)
		delete(others, name)
		if _, without := withGates(others); without == nil {
			return field.Invalid(p.Key(name), gates[name], fmt.Sprintf("kube-scheduler would not start: %v; remove it", err))
		}
	}
	return field.Invalid(p, field.OmitValueType{}, fmt.Sprintf("kube-scheduler would not start: %v", err))
}
