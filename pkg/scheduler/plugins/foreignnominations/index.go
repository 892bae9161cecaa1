// SPDX-License-Identifier: Apache-2.0

package foreignnominations

import (
	"slices"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// room is what a foreign pod takes of a node.
type room struct {
	pod  fwk.PodInfo
	node string
	// bound says that the pod got its node. The room counts on until the scheduler's snapshot has the pod: the cycle
	// that is under way has a snapshot from before, and the cache's own handler may be the later one.
	bound bool
}

// index knows the room that other schedulers have nominated for their pods, by node, and the own pods that were kept out
// by it. Own pods wait only while there is such room: what frees the last of it releases them all.
type index struct {
	// ignored are the schedulers whose pods do not count.
	ignored sets.Set[string]
	// onFreed receives the pods that waited, by namespace and name, when resources are freed.
	onFreed func(waiting map[string]*corev1.Pod)

	// size is the number of rooms: all that is read where there are none.
	size atomic.Int64
	// freed counts how often room was given back.
	freed atomic.Int64

	mu      sync.RWMutex
	rooms   map[types.UID]*room
	byNode  map[string]map[types.UID]*room
	waiting map[types.UID]*corev1.Pod
}

func newIndex(ignored sets.Set[string]) *index {
	return &index{
		ignored: ignored, rooms: map[types.UID]*room{}, byNode: map[string]map[types.UID]*room{}, waiting: map[types.UID]*corev1.Pod{},
	}
}

// empty is the only check that runs while no pod is nominated.
func (x *index) empty() bool { return x.size.Load() == 0 }

// over says that a pod uses no resources any more, or that none are reserved for it any more.
func over(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed ||
		pod.DeletionTimestamp != nil && pod.Spec.NodeName == ""
}

// update records the state of a pod after an event about it.
func (x *index) update(pod *corev1.Pod) {
	nominated := pod.Status.NominatedNodeName != "" && pod.Spec.NodeName == "" && !over(pod) && !x.ignored.Has(pod.Spec.SchedulerName)
	switch {
	case nominated:
		x.add(pod, pod.Status.NominatedNodeName)
	case x.empty():
	case pod.Spec.NodeName != "" && !over(pod):
		x.bind(pod)
	default:
		x.remove(pod)
	}
}

// add notes a nomination.
func (x *index) add(pod *corev1.Pod, node string) {
	info, err := framework.NewPodInfo(pod)
	if err != nil {
		// Affinity terms that cannot be parsed: the API server does not let such a pod through.
		x.remove(pod)
		return
	}
	x.mu.Lock()
	before := x.drop(pod.UID)
	x.put(&room{pod: info, node: node})
	freed := before != nil && (before.node != node || needsLess(before.pod.GetPod(), pod))
	x.mu.Unlock()
	if freed {
		x.release()
	}
}

// bind notes that a pod has got a node: the room stays until it is in the snapshot. Pods that were never nominated are
// none of this plugin's.
func (x *index) bind(pod *corev1.Pod) {
	x.mu.Lock()
	delete(x.waiting, pod.UID)
	before := x.drop(pod.UID)
	if before != nil {
		x.put(&room{pod: before.pod, node: pod.Spec.NodeName, bound: true})
	}
	x.mu.Unlock()
	if before != nil && before.node != pod.Spec.NodeName {
		x.release()
	}
}

// remove forgets a pod that is gone, or that has no nominated node any more.
func (x *index) remove(pod *corev1.Pod) {
	if x.empty() {
		return
	}
	x.mu.Lock()
	if over(pod) {
		delete(x.waiting, pod.UID)
	}
	before := x.drop(pod.UID)
	x.mu.Unlock()
	if before != nil {
		x.release()
	}
}

// arrived forgets bound pods that a snapshot has: from here on they count as all others do.
func (x *index) arrived(snapshot fwk.NodeInfoLister) {
	var there []types.UID
	x.mu.RLock()
	for uid, r := range x.rooms {
		if r.bound && has(snapshot, r.node, uid) {
			there = append(there, uid)
		}
	}
	x.mu.RUnlock()
	if len(there) == 0 {
		return
	}
	x.mu.Lock()
	for _, uid := range there {
		x.drop(uid)
	}
	x.mu.Unlock()
	x.release()
}

// has says whether a snapshot has a pod on a node.
func has(snapshot fwk.NodeInfoLister, node string, uid types.UID) bool {
	info, err := snapshot.Get(node)
	return err == nil && slices.ContainsFunc(info.GetPods(), func(p fwk.PodInfo) bool { return p.GetPod().UID == uid })
}

// needsLess says whether a change of a pod may make room: for resources, or for affinity and spread.
func needsLess(before, after *corev1.Pod) bool {
	return slices.ContainsFunc(framework.PodSchedulingPropertiesChange(after, before), func(e fwk.ClusterEvent) bool {
		return e.ActionType == fwk.UpdatePodScaleDown || e.ActionType == fwk.UpdatePodLabel
	})
}

// put and drop change the maps; the lock is held.
func (x *index) put(r *room) {
	uid := r.pod.GetPod().UID
	if x.byNode[r.node] == nil {
		x.byNode[r.node] = map[types.UID]*room{}
	}
	x.byNode[r.node][uid], x.rooms[uid] = r, r
	x.size.Store(int64(len(x.rooms)))
}

func (x *index) drop(uid types.UID) *room {
	r := x.rooms[uid]
	if r == nil {
		return nil
	}
	delete(x.rooms, uid)
	delete(x.byNode[r.node], uid)
	if len(x.byNode[r.node]) == 0 {
		delete(x.byNode, r.node)
	}
	x.size.Store(int64(len(x.rooms)))
	return r
}

// release hands all waiting pods to onFreed, each once.
func (x *index) release() {
	x.mu.Lock()
	x.freed.Add(1)
	waiting := make(map[string]*corev1.Pod, len(x.waiting))
	for _, pod := range x.waiting {
		waiting[pod.Namespace+"/"+pod.Name] = pod
	}
	clear(x.waiting)
	x.mu.Unlock()
	if len(waiting) > 0 {
		x.onFreed(waiting)
	}
}

// on is the room that foreign pods take of a node.
func (x *index) on(node string) []*room {
	x.mu.RLock()
	defer x.mu.RUnlock()
	var list []*room
	for _, r := range x.byNode[node] {
		list = append(list, r)
	}
	return list
}

// waits remembers a pod that was kept out of a node by what on said when freed was seen. If room has been given back
// since, the pod is released at once: the scheduler's queue remembers that for a pod whose cycle is under way.
func (x *index) waits(pod *corev1.Pod, seen int64) {
	x.mu.Lock()
	late := x.freed.Load() != seen
	if !late {
		x.waiting[pod.UID] = pod
	}
	x.mu.Unlock()
	if late {
		x.onFreed(map[string]*corev1.Pod{pod.Namespace + "/" + pod.Name: pod})
	}
}

// notWaiting forgets a waiting pod that the scheduler tries again.
func (x *index) notWaiting(pod *corev1.Pod) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.waiting, pod.UID)
}
