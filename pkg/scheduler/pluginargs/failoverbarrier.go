// SPDX-License-Identifier: Apache-2.0

package pluginargs

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// FailoverBarrierArgs are the arguments of FailoverBarrier.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type FailoverBarrierArgs struct {
	// timeout is how long one scheduling attempt of a pod waits for the caches to catch up. After that the plugin
	// puts the pod back into the queue and records an event. The next attempt waits again, so no pod is bound on
	// stale data. Between 100ms and 1m. Default: 5s.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('100ms') && duration(self) <= duration('1m')",message="must be a duration between 100ms and 1m, such as 5s"
	Timeout *metav1.Duration `json:"timeout,omitempty"`
}

// Default implements Args.
func (a *FailoverBarrierArgs) Default() {
	if a.Timeout == nil {
		a.Timeout = &metav1.Duration{Duration: 5 * time.Second}
	}
}

// Validate implements Args.
func (a *FailoverBarrierArgs) Validate(p *field.Path) field.ErrorList {
	if a.Timeout == nil {
		return nil
	}
	if d := a.Timeout.Duration; d < 100*time.Millisecond || d > time.Minute {
		return field.ErrorList{field.Invalid(p.Child("timeout"), d.String(), "must be between 100ms and 1m")}
	}
	return nil
}
