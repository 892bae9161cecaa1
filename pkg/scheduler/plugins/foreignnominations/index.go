package foreignnominations

import (
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// index knows the pods that other schedulers have nominated, by node, and the own pods that were kept out by them.
type index struct {
	// ignored are the schedulers whose pods do not count.
	ignored sets.Set[string]
	// onFreed is told the pods that waited, by namespace and name, when a nomination goes.
	onFreed func(waiting map[string]*corev1.Pod)

	// size is the number of nominated pods: read by every pod's PreFilter without the lock.
	size atomic.Int64

	mu      sync.RWMutex
	nodes   map[types.UID]string
	byNode  map[string]map[types.UID]fwk.PodInfo
	waiting map[types.UID]*corev1.Pod
}

func newIndex(ignored sets.Set[string]) *index {
	return &index{
		ignored: ignored, nodes: map[types.UID]string{}, byNode: map[string]map[types.UID]fwk.PodInfo{}, waiting: map[types.UID]*corev1.Pod{},
	}
}

// nomination is the node that another scheduler has nominated for a pod, "" if there is none or it is over.
func (x *index) nomination(pod *corev1.Pod) string {
	over := pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil ||
		pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	if over || x.ignored.Has(pod.Spec.SchedulerName) {
		return ""
	}
	return pod.Status.NominatedNodeName
}

func (x *index) update(pod *corev1.Pod) {
	if pod == nil {
		return
	}
	node := x.nomination(pod)
	if node == "" {
		x.remove(pod)
		return
	}
	info, err := framework.NewPodInfo(pod)
	if err != nil {
		// Affinity terms that cannot be parsed: the API server does not let such a pod through.
		x.remove(pod)
		return
	}
	x.mu.Lock()
	freed := x.drop(pod.UID, node)
	if x.byNode[node] == nil {
		x.byNode[node] = map[types.UID]fwk.PodInfo{}
	}
	x.byNode[node][pod.UID], x.nodes[pod.UID] = info, node
	x.size.Store(int64(len(x.nodes)))
	x.mu.Unlock()
	if freed {
		x.release()
	}
}

func (x *index) remove(pod *corev1.Pod) {
	if pod == nil {
		return
	}
	x.mu.Lock()
	freed := x.drop(pod.UID, "")
	if pod.DeletionTimestamp != nil || pod.Spec.NodeName != "" {
		delete(x.waiting, pod.UID)
	}
	x.size.Store(int64(len(x.nodes)))
	x.mu.Unlock()
	if freed {
		x.release()
	}
}

// drop forgets a pod's nomination unless it is the one to keep, and says whether there was one to forget.
func (x *index) drop(uid types.UID, keep string) bool {
	node, ok := x.nodes[uid]
	if !ok || node == keep {
		return false
	}
	delete(x.nodes, uid)
	delete(x.byNode[node], uid)
	if len(x.byNode[node]) == 0 {
		delete(x.byNode, node)
	}
	return true
}

// release hands over all that wait, once.
func (x *index) release() {
	x.mu.Lock()
	waiting := make(map[string]*corev1.Pod, len(x.waiting))
	for _, pod := range x.waiting {
		waiting[pod.Namespace+"/"+pod.Name] = pod
	}
	clear(x.waiting)
	x.mu.Unlock()
	if len(waiting) > 0 && x.onFreed != nil {
		x.onFreed(waiting)
	}
}

func (x *index) empty() bool { return x.size.Load() == 0 }

// on are the foreign pods nominated for a node.
func (x *index) on(node string) []fwk.PodInfo {
	if x.empty() {
		return nil
	}
	x.mu.RLock()
	defer x.mu.RUnlock()
	var list []fwk.PodInfo
	for _, info := range x.byNode[node] {
		list = append(list, info)
	}
	return list
}

// waits remembers a pod that was kept out of a node.
func (x *index) waits(pod *corev1.Pod) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.waiting[pod.UID] = pod
}

// notWaiting forgets a pod that is tried anew.
func (x *index) notWaiting(pod *corev1.Pod) {
	x.mu.RLock()
	_, ok := x.waiting[pod.UID]
	x.mu.RUnlock()
	if ok {
		x.mu.Lock()
		delete(x.waiting, pod.UID)
		x.mu.Unlock()
	}
}
