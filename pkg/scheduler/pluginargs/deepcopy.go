package pluginargs

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Arguments are runtime.Objects, since that is what a profile holds. They have no kind of their own: where they stand
// says what they are.

func clonePtr[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}

// DeepCopy returns a copy that shares nothing with a.
func (a *TunnelReachArgs) DeepCopy() *TunnelReachArgs {
	out := *a
	out.Automatic = clonePtr(a.Automatic)
	return &out
}

// DeepCopy returns a copy that shares nothing with a.
func (a *PolitePreemptionArgs) DeepCopy() *PolitePreemptionArgs {
	out := *a
	out.Evict = slices.Clone(a.Evict)
	out.MinCandidateNodesPercentage = clonePtr(a.MinCandidateNodesPercentage)
	out.MinCandidateNodesAbsolute = clonePtr(a.MinCandidateNodesAbsolute)
	return &out
}

// DeepCopy returns a copy that shares nothing with a.
func (a *ForeignNominationsArgs) DeepCopy() *ForeignNominationsArgs {
	return &ForeignNominationsArgs{Ignore: slices.Clone(a.Ignore)}
}

// DeepCopy returns a copy that shares nothing with a.
func (a *FailoverBarrierArgs) DeepCopy() *FailoverBarrierArgs {
	return &FailoverBarrierArgs{Timeout: clonePtr(a.Timeout)}
}

// DeepCopyObject implements runtime.Object.
func (a *TunnelReachArgs) DeepCopyObject() runtime.Object { return a.DeepCopy() }

// DeepCopyObject implements runtime.Object.
func (a *PolitePreemptionArgs) DeepCopyObject() runtime.Object { return a.DeepCopy() }

// DeepCopyObject implements runtime.Object.
func (a *ForeignNominationsArgs) DeepCopyObject() runtime.Object { return a.DeepCopy() }

// DeepCopyObject implements runtime.Object.
func (a *FailoverBarrierArgs) DeepCopyObject() runtime.Object { return a.DeepCopy() }

// GetObjectKind implements runtime.Object.
func (a *TunnelReachArgs) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// GetObjectKind implements runtime.Object.
func (a *PolitePreemptionArgs) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// GetObjectKind implements runtime.Object.
func (a *ForeignNominationsArgs) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// GetObjectKind implements runtime.Object.
func (a *FailoverBarrierArgs) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }
