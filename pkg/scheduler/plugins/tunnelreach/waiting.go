// SPDX-License-Identifier: Apache-2.0

package tunnelreach

import (
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// mostWaiting bounds the memory for pods that were deleted while they waited.
const mostWaiting = 10_000

// waiting are pods that the plugin keeps out of nodes. The plugin activates them when its set of Services changes, or
// when the heartbeat of an agent is updated again. The scheduler has no events for either.
type waiting struct {
	activate func(pods map[string]*corev1.Pod)

	// version counts the changes: it is read before a decision and handed to add.
	version atomic.Int64

	mu   sync.Mutex
	pods map[types.NamespacedName]*corev1.Pod
}

// add remembers a pod that was rejected with the data of a version. If there is a newer version, the pod is activated
// at once; the scheduler's queue remembers that for a pod whose cycle is still running.
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

// changed is called after the set of Services has changed.
func (w *waiting) changed() {
	w.version.Add(1)
	w.release()
}

// release activates all waiting pods.
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
