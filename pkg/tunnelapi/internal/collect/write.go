// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"cmp"
	"maps"
	"slices"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fairlead-dev/fairlead/pkg/apis/tunnel/v1alpha1"
)

// object is an object of the API.
type object interface {
	runtime.Object
	metav1.Object
}

// row is an object as it was last written.
type row struct {
	obj object
	at  time.Time
}

// table is what is in a sink.
type table struct {
	sink   Sink
	prefix string
	rows   map[string]row
}

func newTable(sink Sink, prefix string) table { return table{sink, prefix, map[string]row{}} }

// put writes an object if it has changed. If only its counts have, it does so when it has not for a while.
func (t *table) put(o object, now time.Time, every time.Duration) error {
	old, ok := t.rows[o.GetName()]
	if ok && (now.Sub(old.at) < every || equalBut(old.obj, o, keepCounts)) && equalBut(old.obj, o, dropCounts) {
		return nil
	}
	t.rows[o.GetName()] = row{o, now}
	return t.sink.Put(t.prefix+o.GetName(), o.DeepCopyObject())
}

func (t *table) remove(name string) error {
	delete(t.rows, name)
	return t.sink.Remove(t.prefix + name)
}

// What equalBut compares.
const (
	keepCounts = false
	dropCounts = true
)

// equalBut compares two objects without the times at which they were observed, and without counts if drop is set.
func equalBut(a, b object, drop bool) bool {
	return apiequality.Semantic.DeepEqual(lasting(a, drop), lasting(b, drop))
}

func lasting(o object, drop bool) runtime.Object {
	switch o := o.DeepCopyObject().(type) {
	case *v1alpha1.TunnelAgent:
		for i := range o.Status.Servers {
			s := &o.Status.Servers[i]
			s.ObservedTime = metav1.Time{}
			if drop {
				*s = v1alpha1.AgentServer{ServerID: s.ServerID, Links: s.Links, Protocol: s.Protocol, Peers: s.Peers, Since: s.Since, Draining: s.Draining, Silent: s.Silent}
			}
		}
		return o
	case *v1alpha1.TunnelServer:
		s := &o.Status
		if drop { // the time stays if counts do: that a server answers is news, and there are few servers
			s.ObservedTime, s.PendingDials, s.OpenConnections, s.LocalConnections = nil, 0, 0, 0
		}
		return o
	default:
		return o
	}
}

// write brings the sinks in step with what is known.
func (c *Collector) write(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	byID, silent := c.latest()
	c.writeServers(byID, silent, now)
	c.writeAgents(byID, now)
}

func (c *Collector) writeServers(byID map[string]*server, silent []*server, now time.Time) {
	want := map[string]*server{}
	for id, s := range byID {
		want[nameFor(id)] = s
	}
	for _, s := range silent {
		want[unknownServer(s)] = s
	}
	for name, s := range want {
		if s.state != nil && now.Sub(s.at) > c.cfg.KeepGone && len(byID) > 1 {
			continue // another server has taken its place
		}
		before, _ := c.servers.rows[name].obj.(*v1alpha1.TunnelServer)
		c.note(c.servers.put(c.serverObject(name, s, before, now), now, c.cfg.CountsInterval))
	}
	for name := range c.servers.rows {
		if s := want[name]; s == nil || s.state != nil && now.Sub(s.at) > c.cfg.KeepGone && len(byID) > 1 {
			c.note(c.servers.remove(name))
		}
	}
}

func (c *Collector) writeAgents(byID map[string]*server, now time.Time) {
	all := c.linksOf(byID, now)
	names := agentNames(all)
	present := map[string]bool{}
	for key, l := range all {
		name := names[key]
		present[name] = true
		delete(c.gone, name)
		before, _ := c.agents.rows[name].obj.(*v1alpha1.TunnelAgent)
		c.note(c.agents.put(agent(name, key, l, before, now), now, c.cfg.CountsInterval))
	}
	for name, r := range c.agents.rows {
		if present[name] {
			continue
		}
		if _, ok := c.gone[name]; !ok {
			c.gone[name] = now
			if before, ok := r.obj.(*v1alpha1.TunnelAgent); ok {
				c.note(c.agents.put(goneAgent(before, now), now, 0))
			}
		}
	}
	c.forgetGone(now)
}

// forgetGone removes agents that disconnected long ago, and the oldest of those above the limit.
func (c *Collector) forgetGone(now time.Time) {
	names := slices.SortedFunc(maps.Keys(c.gone), func(a, b string) int {
		return cmp.Or(c.gone[a].Compare(c.gone[b]), cmp.Compare(a, b))
	})
	for i, name := range names {
		if now.Sub(c.gone[name]) <= c.cfg.KeepGone && len(names)-i <= c.cfg.MaxGone {
			return
		}
		delete(c.gone, name)
		c.note(c.agents.remove(name))
	}
}

func (c *Collector) note(err error) {
	if err != nil {
		c.cfg.Logger.Error(err, "Cannot keep an object")
	}
}
