// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"slices"

	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

// maxScoreWeight is Kubernetes' own limit of weights in scoring strategies. Plugins' weights have none in
// kube-scheduler; beyond this the other plugins' scores no longer show.
const maxScoreWeight = 100

// validateProfileNames checks the names of all profiles: no two may serve the same Pods.
func validateProfileNames(s *Scheduler, p *field.Path) field.ErrorList {
	var errs field.ErrorList
	builtIn := s.builtInNames(p)
	if len(s.Profiles) == 0 && len(builtIn) == 0 {
		return field.ErrorList{field.Required(p.Child("profiles"), "remove the field for the default profile, or give at least one")}
	}
	var all []namedProfile
	for i, profile := range s.Profiles {
		all = append(all, namedProfile{ptr.Deref(profile.SchedulerName, ""), p.Child("profiles").Index(i)})
	}
	seen := map[string]*field.Path{}
	for _, profile := range append(all, builtIn...) {
		at, name := profile.at.Child("schedulerName"), profile.name
		switch first, again := seen[name]; {
		case name == "":
			errs = append(errs, field.Required(at,
				"without a name the profile would serve "+DefaultSchedulerProfile+" and fight the default scheduler; name it"))
		case name == DefaultSchedulerProfile:
			errs = append(errs, field.Invalid(at, name,
				"is the default scheduler's, and two schedulers would fight over its Pods; use a separate name, such as "+DefaultSchedulerName))
		case again:
			duplicate := field.Duplicate(at, name)
			duplicate.Detail = fmt.Sprintf("is also the name of %s; rename one", first)
			errs = append(errs, duplicate)
		default:
			seen[name] = profile.at
			errs = append(errs, dnsSubdomain(name, at)...)
		}
	}
	return errs
}

// ProfileNames are those of all profiles, in the order of the configuration; of a defaulted
// bundle all have one.
func (s *Scheduler) ProfileNames() []string {
	names := make([]string, 0, len(s.Profiles))
	for _, p := range s.Profiles {
		names = append(names, ptr.Deref(p.SchedulerName, ""))
	}
	for _, p := range s.builtInNames(nil) {
		names = append(names, p.name)
	}
	return names
}

// builtInNames are those of all built-in profiles.
func (s *Scheduler) builtInNames(p *field.Path) []namedProfile {
	list := s.BuiltInProfiles.names(p.Child("builtInProfiles"))
	for i := range s.MoreBuiltInProfiles {
		list = append(list, s.MoreBuiltInProfiles[i].names(p.Child("schedulerProfiles").Index(i))...)
	}
	return list
}

// namedProfile is a profile's name and where it stands.
type namedProfile struct {
	name string
	at   *field.Path
}

func (b *BuiltInProfiles) names(p *field.Path) []namedProfile {
	var list []namedProfile
	if b.Standard != nil {
		list = append(list, namedProfile{b.Standard.SchedulerName, p.Child("standard")})
	}
	if b.Binpack != nil {
		list = append(list, namedProfile{b.Binpack.SchedulerName, p.Child("binpack")})
	}
	if b.Spread != nil {
		list = append(list, namedProfile{b.Spread.SchedulerName, p.Child("spread")})
	}
	if b.Batch != nil {
		list = append(list, namedProfile{b.Batch.SchedulerName, p.Child("batch")})
	}
	return list
}

func validateBuiltInProfiles(b *BuiltInProfiles, p *field.Path) field.ErrorList {
	var errs field.ErrorList
	if b.Binpack != nil {
		errs = append(errs, validateBinpack(b.Binpack, p.Child("binpack"))...)
	}
	if b.Spread != nil {
		errs = append(errs, validateSpread(b.Spread, p.Child("spread"))...)
	}
	if b.Batch != nil {
		at := p.Child("batch")
		errs = append(errs, percentage(b.Batch.PercentageOfNodesToScore, at.Child("percentageOfNodesToScore"))...)
		if placements := []BatchPlacement{BatchPack, BatchSpread}; !slices.Contains(placements, b.Batch.Placement) {
			errs = append(errs, field.NotSupported(at.Child("placement"), b.Batch.Placement, placements))
		}
	}
	return errs
}

func validateBinpack(b *BinpackProfile, p *field.Path) field.ErrorList {
	errs := percentage(b.PercentageOfNodesToScore, p.Child("percentageOfNodesToScore"))
	errs = append(errs, weight(int64(ptr.Deref(b.Weight, 0)), p.Child("weight"))...)
	if len(b.Resources) == 0 {
		errs = append(errs, field.Required(p.Child("resources"), "remove the field for cpu and memory, or name at least one resource"))
	}
	seen := sets.New[string]()
	for i, r := range b.Resources {
		at := p.Child("resources").Index(i)
		errs = append(errs, metav1validation.ValidateLabelName(r.Name, at.Child("name"))...)
		errs = append(errs, weight(r.Weight, at.Child("weight"))...)
		if seen.Has(r.Name) {
			errs = append(errs, field.Duplicate(at.Child("name"), r.Name))
		}
		seen.Insert(r.Name)
	}
	return errs
}

func validateSpread(s *SpreadProfile, p *field.Path) field.ErrorList {
	errs := percentage(s.PercentageOfNodesToScore, p.Child("percentageOfNodesToScore"))
	errs = append(errs, weight(int64(ptr.Deref(s.Weight, 0)), p.Child("weight"))...)
	errs = append(errs, atLeastOne(s.MaxSkew, p.Child("maxSkew"), "remove it for the default")...)
	if len(s.TopologyKeys) == 0 && ptr.Deref(s.MaxSkew, 1) > 1 {
		errs = append(errs, field.Forbidden(p.Child("maxSkew"),
			"does nothing without topologyKeys, since kube-scheduler's own constraints have their own skews; set topologyKeys, such as [kubernetes.io/hostname], or remove it"))
	}
	for i, key := range s.TopologyKeys {
		at := p.Child("topologyKeys").Index(i)
		errs = append(errs, metav1validation.ValidateLabelName(key, at)...)
		if slices.Contains(s.TopologyKeys[:i], key) {
			errs = append(errs, field.Duplicate(at, key))
		}
	}
	return errs
}

func weight(w int64, p *field.Path) field.ErrorList {
	if w < 1 || w > maxScoreWeight {
		return field.ErrorList{field.Invalid(p, w, fmt.Sprintf("must be between 1 and %d; remove it for the default", maxScoreWeight))}
	}
	return nil
}

func percentage(n *int32, p *field.Path) field.ErrorList {
	if v := ptr.Deref(n, 0); v < 0 || v > 100 {
		return field.ErrorList{field.Invalid(p, v, "must be between 0 and 100, where 0 lets kube-scheduler choose")}
	}
	return nil
}

func validatePlugins(s *SchedulerPlugins, p *field.Path) field.ErrorList {
	errs := s.TunnelReach.Validate(p.Child("tunnelReach"))
	errs = append(errs, s.PolitePreemption.Validate(p.Child("politePreemption"))...)
	errs = append(errs, s.ForeignNominations.Validate(p.Child("foreignNominations"))...)
	return append(errs, s.FailoverBarrier.Validate(p.Child("failoverBarrier"))...)
}
