package tunnelreach

import (
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// mostWaiting bounds the memory that pods take which were deleted while they waited.
const mostWaiting = 10_000

// waiting are pods that the plugin keeps out of nodes. They are tried again when what it knows of Services changes, or
// somebody looks at an agent again: the scheduler has no events for that.
type waiting struct {
	activate func(pods map[string]*corev1.Pod)

	// version counts the changes: it is read before a decision and handed to add.
	version atomic.Int64

	mu   sync.Mutex
	pods map[types.NamespacedName]*corev1.Pod
}

// add remembers a pod that was refused by what was known at a version. If there is a newer one, the pod is tried again
// at once: the scheduler's queue remembers that for a pod whose cycle is under way.
func (w *waiting) add(pod *corev1.Pod, seen int64) {
	w.mu.Lock()
	late := w.version.Load() != seen || len(w.pods) >= mostWaiting
	if w.pods == nil {
		w.pods = map[types.NamespacedName]*corev1.Pod{}
	}
	w.pods[types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}] = pod
	w.mu.Unlock()
	if late {
		w.release()
	}
}

// changed is called after what is known has changed.
func (w *waiting) changed() {
	w.version.Add(1)
	w.release()
}

// release tries all again that wait.
func (w *waiting) release() {
	w.mu.Lock()
	pods := make(map[string]*corev1.Pod, len(w.pods))
	for name, pod := range w.pods {
		pods[name.String()] = pod
	}
	clear(w.pods)
	w.mu.Unlock()
	if len(pods) > 0 {
		w.activate(pods)
	}
}
