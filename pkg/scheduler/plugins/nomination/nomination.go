// Package nomination keeps pods' nominated nodes through cycles in which a plugin holds them back for a while.
package nomination

import (
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// skipper is the part of a cycle's state by which kube-scheduler itself leaves PostFilter out, for pod groups.
type skipper interface{ SetSkipAllPostFilterPlugins(skip bool) }

var _ skipper = &framework.CycleState{}

// Keep leaves PostFilter out of a cycle whose PreFilter rejects the pod for a reason that lies with no node. Preemption
// would take the nominated node for one that fits no more, find no other, and give the nomination up, although the pods
// that were evicted for it may still be ending: the next cycle would evict others. It does not matter where in a profile
// preemption stands.
func Keep(state fwk.CycleState) {
	if s, ok := state.(skipper); ok {
		s.SetSkipAllPostFilterPlugins(true)
	}
}
