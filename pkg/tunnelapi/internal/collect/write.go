// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"cmp"
	"hash/fnv"
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
	// of is the fingerprint of what the object was made of, if it is known.
	of uint64
}

// table is what is in a sink.
type table struct {
	sink   Sink
	prefix string
	rows   map[string]row
}

func newTable(sink Sink, prefix string) table { return table{sink, prefix, map[string]row{}} }

// maxCounts is how many objects per second are written at most because of their counts.
const maxCounts = 100

// put writes an object if it has changed. If only its counts have, it does so once in every interval. The table keeps the
// object that is in the sink.
func (t *table) put(o object, now time.Time, every time.Duration) error {
	old, ok := t.rows[o.GetName()]
	if ok && equalBut(old.obj, o, dropCounts) && (!t.due(o.GetName(), old.at, now, every) || equalBut(old.obj, o, keepCounts)) {
		return nil
	}
	t.rows[o.GetName()] = row{obj: o, at: now}
	return t.sink.Put(t.prefix+o.GetName(), o)
}

// due reports whether counts may be written again. Each object has a time of its own in the interval, so that watchers get
// few changes at a time. With very many objects the interval is longer. The clock may have been set back, and Truncate
// drops the monotonic reading.
func (t *table) due(name string, last, now time.Time, every time.Duration) bool {
	every = max(every, time.Duration(len(t.rows))*time.Second/maxCounts)
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	offset := time.Duration(h.Sum64() % uint64(every))
	return !last.Add(offset).Truncate(every).Equal(now.Add(offset).Truncate(every))
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

// lasting returns a copy that shares what it does not change. The resource version is the sink's.
func lasting(o object, drop bool) any {
	switch o := o.(type) {
	case *v1alpha1.TunnelAgent:
		out := *o
		out.ResourceVersion, out.Status.Servers = "", slices.Clone(o.Status.Servers)
		for i := range out.Status.Servers {
			s := &out.Status.Servers[i]
			s.ObservedTime = metav1.Time{}
			if drop {
				*s = v1alpha1.AgentServer{ServerID: s.ServerID, Links: s.Links, Protocol: s.Protocol, Peers: s.Peers, Since: s.Since, Draining: s.Draining, Silent: s.Silent, Stale: s.Stale}
			}
		}
		return &out
	case *v1alpha1.TunnelServer:
		out := *o
		out.ResourceVersion = ""
		if s := &out.Status; drop { // the time stays if counts do: that a server answers is news, and there are few servers
			s.ObservedTime, s.PendingDials, s.OpenConnections, s.LocalConnections = nil, 0, 0, 0
		}
		return &out
	default:
		return o
	}
}

// write brings the sinks in step with what is known. It is called by one goroutine at a time. A sink may take its time, so
// mu is not held meanwhile.
func (c *Collector) write(now time.Time) {
	c.mu.Lock()
	byID, silent := c.latest()
	c.mu.Unlock()
	c.forgetLost(byID, now)
	c.writeServers(byID, silent, now)
	c.writeAgents(byID, now)
}

// forgetLost removes servers that have not answered for long, if one answers that may have taken their places. If none
// does, it is the servers or the way to them that has failed, and not their number that has changed.
func (c *Collector) forgetLost(byID map[string]*server, now time.Time) {
	answers := false
	for _, s := range byID {
		answers = answers || c.fresh(s, now)
	}
	if !answers {
		return
	}
	maps.DeleteFunc(byID, func(_ string, s *server) bool { return !c.fresh(s, now) && now.Sub(s.at) > c.cfg.KeepGone })
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
		before, _ := c.servers.rows[name].obj.(*v1alpha1.TunnelServer)
		c.note(c.servers.put(c.serverObject(name, s, before, now), now, c.cfg.CountsInterval))
	}
	for name := range c.servers.rows {
		if want[name] == nil {
			c.note(c.servers.remove(name))
		}
	}
}

func (c *Collector) writeAgents(byID map[string]*server, now time.Time) {
	all := c.linksOf(byID, now)
	names := agentNames(all, c.heldNames())
	present := map[string]bool{}
	for key, of := range all {
		name := names[key]
		present[name] = true
		delete(c.gone, name)
		r, made := c.agents.rows[name], c.fingerprint(of)
		before, _ := r.obj.(*v1alpha1.TunnelAgent)
		if before != nil && keyOf(before) != key { // of another agent, which has disconnected
			c.note(c.agents.remove(name))
			r, before = row{}, nil
		}
		if r.of == made && !c.agents.due(name, r.at, now, c.cfg.CountsInterval) {
			continue
		}
		c.note(c.agents.put(agent(name, key, of, before, now), now, c.cfg.CountsInterval))
		r = c.agents.rows[name]
		r.of = made
		c.agents.rows[name] = r
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

// heldNames returns the names that agents have, or had when they disconnected.
func (c *Collector) heldNames() map[agentKey]string {
	out := make(map[agentKey]string, len(c.agents.rows))
	for name, r := range c.agents.rows {
		if a, ok := r.obj.(*v1alpha1.TunnelAgent); ok {
			out[keyOf(a)] = name
		}
	}
	return out
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
