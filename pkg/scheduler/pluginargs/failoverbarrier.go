package pluginargs

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// FailoverBarrierArgs are the arguments of FailoverBarrier.
type FailoverBarrierArgs struct {
	// Timeout is how long one pod's attempt waits for the caches to catch up before it is put back and says so in an
	// event; the next attempt waits anew, so that nothing is bound on old knowledge. Default: 5s.
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
