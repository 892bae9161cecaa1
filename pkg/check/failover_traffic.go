// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/fairlead-dev/fairlead/pkg/scheduler/pluginargs"
)

// bindLog is what was seen of each pod: every node that it was on, in order.
type bindLog struct {
	mu   sync.Mutex
	pods map[types.UID]*boundPod
}

type boundPod struct {
	name    string
	nodes   []string
	boundAt time.Time
}

func newBindLog() *bindLog { return &bindLog{pods: map[types.UID]*boundPod{}} }

func (b *bindLog) see(pod *corev1.Pod, at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.pods[pod.UID]
	if p == nil {
		p = &boundPod{name: pod.Name}
		b.pods[pod.UID] = p
	}
	node := pod.Spec.NodeName
	if node == "" || (len(p.nodes) > 0 && p.nodes[len(p.nodes)-1] == node) {
		return
	}
	if p.nodes = append(p.nodes, node); len(p.nodes) == 1 {
		p.boundAt = at
	}
}

func (b *bindLog) unbound() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.pods {
		if len(p.nodes) == 0 {
			return fmt.Errorf("pod %s, created during the failover, is not bound to a node", p.name)
		}
	}
	return nil
}

// eventLost is how long before its death a leader may have bound a pod without getting the event out: while it binds other pods, it holds
// events back, and then they are sent in the background.
const eventLost = pluginargs.DefaultMaxEventDelay + eventOnItsWay

// eventOnItsWay is how long an event may take that is sent.
const eventOnItsWay = 2 * time.Second

// death is the time between the order to kill a leader and the confirmation that it was killed. On a busy node the leader may outlive both:
// renewed is the earliest time at which it can have renewed its Lease after the order, and lived is when that was seen; both are zero if it
// did not renew.
type death struct{ ordered, done, renewed, lived time.Time }

// at is the earliest time at which the leader can have died.
func (d death) at() time.Time {
	if d.renewed.After(d.ordered) {
		return d.renewed
	}
	return d.ordered
}

// over is when everything that the leader did had taken effect, except for events on their way.
func (d death) over() time.Time {
	if d.lived.After(d.done) {
		return d.lived
	}
	return d.done
}

// mayLackEvent says whether the killed leader may have bound the pod and died before its event.
func (p *boundPod) mayLackEvent(killed death) bool {
	return p.boundAt.After(killed.ordered.Add(-eventLost)) && p.boundAt.Before(killed.over().Add(eventOnItsWay))
}

// lacking counts the pods without an event that must have one.
func (b *bindLog) lacking(events map[types.UID][]binding, killed death) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for uid, p := range b.pods {
		if len(events[uid]) == 0 && !p.mayLackEvent(killed) {
			n++
		}
	}
	return n
}

// verdict says whether each pod was bound exactly once and by scheduler. The pods that the killed leader bound last may lack their event.
func (b *bindLog) verdict(events map[types.UID][]binding, scheduler string, killed death) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.pods) == 0 {
		return fmt.Errorf("no pod was created during the failover, so the check proves nothing")
	}
	for uid, p := range b.pods {
		if len(p.nodes) > 1 {
			return fmt.Errorf("pod %s was bound more than once: to %v", p.name, p.nodes)
		}
		bindings := events[uid]
		if len(bindings) == 0 {
			if p.mayLackEvent(killed) {
				continue
			}
			return noEvent(p.name, p.nodes[0])
		}
		if err := boundOnlyBy(p.name, bindings, scheduler); err != nil {
			return err
		}
	}
	return nil
}

// traffic creates pods for the second scheduler and watches them.
type traffic struct {
	seen *bindLog
	stop func() *bindLog
}

// startTraffic creates a pod every times.podEvery until stopped, and waits until the first ones are bound.
func (s *Scope) startTraffic(ctx context.Context) (*traffic, error) {
	ns, err := s.Namespace(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	t := &traffic{seen: newBindLog()}
	watcher, err := s.watchPods(ctx, ns.Name)
	if err != nil {
		cancel()
		return nil, err
	}
	var wg sync.WaitGroup
	wg.Go(func() { t.record(watcher) })
	wg.Go(func() { s.createPods(ctx) })
	t.stop = sync.OnceValue(func() *bindLog {
		cancel()
		watcher.Stop()
		wg.Wait()
		return t.seen
	})
	if err := sleep(ctx, 3*s.times.podEvery); err != nil {
		t.stop()
		return nil, err
	}
	return t, nil
}

func (s *Scope) watchPods(ctx context.Context, namespace string) (watch.Interface, error) {
	pods := s.Client.CoreV1().Pods(namespace)
	list, err := pods.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	return watchtools.NewRetryWatcherWithContext(ctx, list.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) { return pods.Watch(ctx, o) },
	})
}

func (t *traffic) record(watcher watch.Interface) {
	for event := range watcher.ResultChan() {
		if pod, ok := event.Object.(*corev1.Pod); ok && event.Type != watch.Deleted {
			t.seen.see(pod, time.Now())
		}
	}
}

// createPods goes on when a pod cannot be created: the failover is about the scheduler, and a pod that is not there is not counted.
func (s *Scope) createPods(ctx context.Context) {
	ticker := time.NewTicker(s.times.podEvery)
	defer ticker.Stop()
	for i := range podsAtMost {
		_, _ = s.createPod(ctx, trafficPod(i, s.SchedulerName, s.Probe.PauseImage))
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}
