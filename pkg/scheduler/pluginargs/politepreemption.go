// SPDX-License-Identifier: Apache-2.0

package pluginargs

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

// AnyScheduler in PolitePreemptionArgs.Evict stands for every scheduler.
const AnyScheduler = "*"

// PolitePreemptionArgs are the arguments of PolitePreemption.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type PolitePreemptionArgs struct {
	// evict names schedulers whose pods may be evicted, besides those of the profile itself; "*" is every scheduler,
	// which makes this the in-tree preemption. Default: none. A bundle adds its other profiles to built-in ones.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=253
	Evict []string `json:"evict,omitempty"`

	// minCandidateNodesPercentage is the least share of nodes that are looked at for victims, in percent. Default: 10,
	// as in DefaultPreemption.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	MinCandidateNodesPercentage *int32 `json:"minCandidateNodesPercentage,omitempty"`

	// minCandidateNodesAbsolute is the least number of nodes that are looked at. Default: 100, as in DefaultPreemption.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MinCandidateNodesAbsolute *int32 `json:"minCandidateNodesAbsolute,omitempty"`
}

// Default implements Args.
func (a *PolitePreemptionArgs) Default() {
	if a.MinCandidateNodesPercentage == nil {
		a.MinCandidateNodesPercentage = ptr.To[int32](10)
	}
	if a.MinCandidateNodesAbsolute == nil {
		a.MinCandidateNodesAbsolute = ptr.To[int32](100)
	}
}

// Validate implements Args.
func (a *PolitePreemptionArgs) Validate(p *field.Path) field.ErrorList {
	errs := schedulerNames(a.Evict, p.Child("evict"))
	if slices.Contains(a.Evict, AnyScheduler) && len(a.Evict) > 1 {
		errs = append(errs, field.Invalid(p.Child("evict"), a.Evict, "\"*\" stands for every scheduler: remove the other names, or \"*\""))
	}
	percentage, absolute := ptr.Deref(a.MinCandidateNodesPercentage, 10), ptr.Deref(a.MinCandidateNodesAbsolute, 100)
	if percentage < 0 || percentage > 100 {
		errs = append(errs, field.Invalid(p.Child("minCandidateNodesPercentage"), percentage, "must be between 0 and 100"))
	}
	if absolute < 0 {
		errs = append(errs, field.Invalid(p.Child("minCandidateNodesAbsolute"), absolute, "must not be negative"))
	}
	if percentage == 0 && absolute == 0 {
		errs = append(errs, field.Invalid(p.Child("minCandidateNodesPercentage"), percentage,
			"and minCandidateNodesAbsolute must not both be zero: no node would be looked at; set one of them"))
	}
	return errs
}
