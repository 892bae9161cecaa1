package tunnelreach

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
)

// settle is for the scheduler's own handler of nodes to come to what this one has seen.
const settle = time.Second

// followHeartbeats tries waiting pods again when a condition that was too old to count is looked after again. Nothing in
// it changes but the heartbeat, which is no event to the scheduler.
func (p *Plugin) followHeartbeats(nodes cache.SharedIndexInformer) error {
	_, err := nodes.AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(before, after any) {
		b, ok := before.(*corev1.Node)
		a, ok2 := after.(*corev1.Node)
		if ok && ok2 && p.seenAgain(b, a) {
			time.AfterFunc(settle, p.waiting.changed)
		}
	}})
	if err != nil {
		return fmt.Errorf("watch nodes: %w", err)
	}
	return nil
}

func (p *Plugin) seenAgain(before, after *corev1.Node) bool {
	now := p.now()
	_, wasStale := tunnelReady(before, now)
	ready, _ := tunnelReady(after, now)
	return wasStale && ready
}
