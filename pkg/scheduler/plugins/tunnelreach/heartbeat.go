// SPDX-License-Identifier: Apache-2.0

package tunnelreach

import (
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/fairlead-dev/fairlead/pkg/scheduler/pluginargs"
)

// settle gives the scheduler's own node handler time to process what this handler has seen.
const settle = time.Second

// each are the nodes of a snapshot.
func each(infos []fwk.NodeInfo) iter.Seq[*corev1.Node] {
	return func(yield func(*corev1.Node) bool) {
		for _, info := range infos {
			if !yield(info.Node()) {
				return
			}
		}
	}
}

// survey finds out which domains have a live agent, and how long that holds.
func (p *Plugin) survey(nodes iter.Seq[*corev1.Node]) *reach {
	r := &reach{domains: sets.New[string]()}
	now, forEver := p.now(), false
	for node := range nodes {
		ready, stale := tunnelReady(node, now)
		if stale {
			r.stale++
		}
		domain, ok := node.Labels[p.args.TopologyKey]
		if !ok || !ready {
			continue
		}
		r.domains.Insert(domain)
		until, ends := staleAt(node)
		forEver = forEver || !ends
		if until.After(r.until) {
			r.until = until
		}
	}
	if forEver {
		r.until = time.Time{}
	}
	return r
}

// tunnelReady says whether a node's agent is ready, and whether the heartbeat is so old that this may no longer be true.
// A condition without a heartbeat comes from another component, which does not update heartbeats; it is never stale.
func tunnelReady(node *corev1.Node, now time.Time) (ready, stale bool) {
	for _, c := range node.Status.Conditions {
		if c.Type == pluginargs.TunnelReadyCondition {
			stale = !c.LastHeartbeatTime.IsZero() && now.Sub(c.LastHeartbeatTime.Time) > pluginargs.TunnelReadyStale
			return c.Status == corev1.ConditionTrue && !stale, stale
		}
	}
	return false, false
}

// staleAt returns when a node's condition stops counting unless its heartbeat is updated. A condition without a
// heartbeat never stops counting.
func staleAt(node *corev1.Node) (at time.Time, ends bool) {
	for _, c := range node.Status.Conditions {
		if c.Type == pluginargs.TunnelReadyCondition && !c.LastHeartbeatTime.IsZero() {
			return c.LastHeartbeatTime.Add(pluginargs.TunnelReadyStale), true
		}
	}
	return time.Time{}, false
}

// saysReady is tunnelReady without regard to the time.
func saysReady(node *corev1.Node) bool {
	ready, _ := tunnelReady(node, time.Time{})
	return ready
}

// followHeartbeats activates waiting pods when a stale condition gets a new heartbeat. Only the heartbeat changes, and
// the scheduler has no event for that.
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

// alarm fires when the heartbeat of the last agent becomes stale. From then on pods may run anywhere, but no node
// changes, so no event would make the scheduler retry them.
type alarm struct {
	mu    sync.Mutex
	at    time.Time
	timer *time.Timer
}

// wakeAt sets the alarm, unless it fires earlier anyway; the zero time means never.
func (p *Plugin) wakeAt(at time.Time) {
	if at.IsZero() {
		return
	}
	a := &p.alarm
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.timer != nil && !at.Before(a.at) {
		return
	}
	if a.timer != nil {
		a.timer.Stop()
	}
	a.at = at
	a.timer = time.AfterFunc(max(at.Sub(p.now()), 0)+time.Millisecond, p.lookAgain)
}

// lookAgain activates waiting pods if no agent counts any more. If a heartbeat was updated in the meantime, it sets the
// alarm again.
func (p *Plugin) lookAgain() {
	p.alarm.mu.Lock()
	p.alarm.timer = nil
	p.alarm.mu.Unlock()
	nodes, err := p.nodes.List(labels.Everything())
	if r := p.survey(slices.Values(nodes)); err == nil && len(r.domains) > 0 {
		p.wakeAt(r.until)
		return
	}
	p.waiting.changed()
}
