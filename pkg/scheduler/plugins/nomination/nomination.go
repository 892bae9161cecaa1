// SPDX-License-Identifier: Apache-2.0

// Package nomination keeps pods' nominated nodes through cycles in which a plugin holds them back for a while.
package nomination

import (
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// skipper is the part of a cycle's state by which kube-scheduler itself leaves PostFilter out, for pod groups.
type skipper interface{ SetSkipAllPostFilterPlugins(skip bool) }

var _ skipper = &framework.CycleState{}

// Keep skips PostFilter in a cycle whose PreFilter rejects the pod for a reason that no node causes. Preemption would
// conclude that the nominated node no longer fits, find no other node, and clear the nomination, although the pods that
// were evicted for it may still be terminating. The next cycle would then evict other pods. The position of preemption
// in the profile does not matter.
func Keep(state fwk.CycleState) {
	if s, ok := state.(skipper); ok {
		s.SetSkipAllPostFilterPlugins(true)
	}
}
