// SPDX-License-Identifier: Apache-2.0

package pluginargs

import "k8s.io/apimachinery/pkg/util/validation/field"

// ForeignNominationsArgs are the arguments of ForeignNominations.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type ForeignNominationsArgs struct {
	// ignore names schedulers whose nominations do not count. Default: none.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=253
	Ignore []string `json:"ignore,omitempty"`
}

// Default implements Args.
func (a *ForeignNominationsArgs) Default() {}

// Validate implements Args.
func (a *ForeignNominationsArgs) Validate(p *field.Path) field.ErrorList {
	return schedulerNames(a.Ignore, p.Child("ignore"))
}
