// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"cmp"
	"hash/maphash"
	"maps"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fairlead-dev/fairlead/pkg/apis/tunnel/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/state"
)

// LabelNode is a label of TunnelAgents and TunnelConnections: the node of the agent.
const LabelNode = "tunnel.fairlead.dev/node"

// agentKey tells agents apart. Agents of several owners may have one ID, because they choose it.
type agentKey struct{ id, owner string }

// fromServer is what one server reports of an agent.
type fromServer struct {
	id    string // of the server
	fresh bool   // the answer counts as true
	at    time.Time
	links []*state.Link
}

// linksOf returns the links of all agents, ordered by the IDs of the servers.
func (c *Collector) linksOf(byID map[string]*server, now time.Time) map[agentKey][]fromServer {
	out := map[agentKey][]fromServer{}
	for _, id := range slices.Sorted(maps.Keys(byID)) {
		s := byID[id]
		fresh := c.fresh(s, now)
		for i := range s.state.Links {
			l := &s.state.Links[i]
			key := agentKey{l.AgentID, l.Owner}
			of := out[key]
			if len(of) == 0 || of[len(of)-1].id != id {
				of = append(of, fromServer{id: id, fresh: fresh, at: s.at})
			}
			of[len(of)-1].links = append(of[len(of)-1].links, l)
			out[key] = of
		}
	}
	return out
}

// fingerprint is the same for the same links, counts and times of observation aside. It is never 0.
func (c *Collector) fingerprint(of []fromServer) uint64 {
	var h maphash.Hash
	h.SetSeed(c.seed)
	text := func(s string) { _, _ = h.WriteString(s); _ = h.WriteByte(0) }
	flag := func(b bool) { text(strconv.FormatBool(b)) }
	for _, s := range of {
		text(s.id)
		flag(s.fresh)
		for _, l := range s.links {
			text(l.Peer)
			text(l.Pod)
			text(l.AgentVersion)
			text(l.Protocol)
			for _, i := range l.Identifiers {
				text(i)
			}
			maphash.WriteComparable(&h, l.Since.UnixNano())
			flag(l.Draining)
			flag(l.Silent)
		}
	}
	return max(h.Sum64(), 1)
}

// keyOf is the key of the agent that an object shows.
func keyOf(a *v1alpha1.TunnelAgent) agentKey { return agentKey{a.Status.AgentID, a.Status.NodeName} }

// agentNames gives each agent a name. Agents of several owners that share an ID get names of both, except for one of them.
// That is the one that has had the name before or, if none has, the one whose link is the oldest: an agent must not get the
// name of another that is connected, and with it the rights to connections through that one, by the choice of its ID.
func agentNames(all map[agentKey][]fromServer, held map[agentKey]string) map[agentKey]string {
	names, taken := map[agentKey]string{}, map[string]bool{}
	var others []agentKey
	for k := range all {
		if name, ok := held[k]; ok {
			names[k], taken[name] = name, true
		} else {
			others = append(others, k)
		}
	}
	slices.SortFunc(others, func(a, b agentKey) int {
		return cmp.Or(oldest(all[a]).Compare(oldest(all[b])), cmp.Compare(a.id, b.id), cmp.Compare(a.owner, b.owner))
	})
	for _, k := range others {
		name := nameFor(k.id)
		for more := []string{k.id, k.owner}; taken[name]; more = append(more, "") {
			name = readable(k.id) + hash(more...)
		}
		names[k], taken[name] = name, true
	}
	return names
}

// oldest is when the oldest link was established.
func oldest(of []fromServer) (since time.Time) {
	for _, f := range of {
		for _, l := range f.links {
			if since.IsZero() || l.Since.Before(since) {
				since = l.Since
			}
		}
	}
	return since
}

// agent makes the object of an agent that a server reports. before is the object as it was, or nil; what is the same is
// shared with it.
func agent(name string, key agentKey, of []fromServer, before *v1alpha1.TunnelAgent, now time.Time) *v1alpha1.TunnelAgent {
	a := &v1alpha1.TunnelAgent{}
	var old []metav1.Condition
	if before != nil {
		old = before.Status.Conditions
		a.Name, a.UID, a.Labels, a.CreationTimestamp = before.Name, before.UID, before.Labels, before.CreationTimestamp
	} else {
		a.Name, a.UID = name, uidFor("agent", key.id, key.owner)
		if key.owner != "" && len(validation.IsValidLabelValue(key.owner)) == 0 {
			a.Labels = map[string]string{LabelNode: key.owner}
		}
	}
	a.Status.AgentID, a.Status.NodeName = key.id, key.owner
	draining, fresh := true, false
	a.Status.Servers = make([]v1alpha1.AgentServer, 0, len(of))
	for _, f := range of {
		s := agentServer(f)
		draining, fresh = draining && s.Draining, fresh || f.fresh
		a.Status.Servers = append(a.Status.Servers, s)
		if before == nil && (a.CreationTimestamp.IsZero() || s.Since.Before(&a.CreationTimestamp)) {
			a.CreationTimestamp = s.Since
		}
	}
	a.Status.Version, a.Status.Identifiers = saysOfItself(of)
	a.Status.PodName = podOf(of)
	if before != nil && slices.Equal(a.Status.Identifiers, before.Status.Identifiers) {
		a.Status.Identifiers = before.Status.Identifiers
	}
	connected := condition(v1alpha1.ConditionConnected, metav1.ConditionTrue, "LinkEstablished", "A konnectivity-server has a link to the agent.")
	if !fresh {
		connected = condition(v1alpha1.ConditionConnected, metav1.ConditionUnknown, "ServerUnreachable",
			"No konnectivity-server that had a link to the agent shows its state now.")
	}
	drain := condition(v1alpha1.ConditionDraining, metav1.ConditionFalse, "TakesDials", "A link to the agent takes new dials.")
	if draining {
		drain = condition(v1alpha1.ConditionDraining, metav1.ConditionTrue, "LinksEnd", "All links to the agent end when their connections have ended.")
	}
	a.Status.Conditions = conditions(old, now, connected, drain)
	return a
}

// saysOfItself is what an agent has sent to the servers. An answer that counts as true goes before one that is old.
func saysOfItself(of []fromServer) (version string, identifiers []string) {
	for _, fresh := range []bool{true, false} {
		for _, f := range of {
			if f.fresh != fresh {
				continue
			}
			version = cmp.Or(version, f.links[0].AgentVersion)
			if identifiers == nil {
				identifiers = f.links[0].Identifiers
			}
		}
	}
	return version, identifiers
}

// podOf is the Pod of the agent's newest link, because Pods replace each other. An answer that counts as true goes before
// one that is old.
func podOf(of []fromServer) (pod string) {
	var fresh bool
	var since time.Time
	for _, f := range of {
		for _, l := range f.links {
			if l.Pod != "" && (pod == "" || f.fresh && !fresh || f.fresh == fresh && l.Since.After(since)) {
				pod, fresh, since = l.Pod, f.fresh, l.Since
			}
		}
	}
	return pod
}

// agentServer sums up the links of an agent to one server.
func agentServer(of fromServer) v1alpha1.AgentServer {
	s := v1alpha1.AgentServer{ServerID: of.id, Links: int32(len(of.links)), Protocol: of.links[0].Protocol, Draining: true, Silent: true, ObservedTime: seconds(of.at), Stale: !of.fresh}
	for _, l := range of.links {
		if since := seconds(l.Since); s.Since.IsZero() || since.Before(&s.Since) {
			s.Since = since
		}
		if l.RTTMicroseconds > 0 && (s.RTTMicroseconds == 0 || l.RTTMicroseconds < s.RTTMicroseconds) {
			s.RTTMicroseconds = l.RTTMicroseconds
		}
		s.Peers = append(s.Peers, l.Peer)
		s.OpenConnections += int64(l.OpenConnections)
		s.PendingDials += int64(l.PendingDials)
		s.DialsTotal += l.DialsTotal
		s.DialFailures += l.DialFailures
		s.BytesToAgent += l.BytesToAgent
		s.BytesFromAgent += l.BytesFromAgent
		s.Draining = s.Draining && l.Draining
		s.Silent = s.Silent && l.Silent
	}
	slices.Sort(s.Peers)
	return s
}

// goneAgent makes the object of an agent that no server reports any more.
func goneAgent(before *v1alpha1.TunnelAgent, now time.Time) *v1alpha1.TunnelAgent {
	a := before.DeepCopy()
	a.Status.Servers = nil
	a.Status.Conditions = conditions(before.Status.Conditions, now,
		condition(v1alpha1.ConditionConnected, metav1.ConditionFalse, "NoLink", "No konnectivity-server has a link to the agent."),
		condition(v1alpha1.ConditionDraining, metav1.ConditionFalse, "NoLink", "No konnectivity-server has a link to the agent."))
	return a
}

// seconds is a time as the API shows it, without fractions.
func seconds(t time.Time) metav1.Time { return metav1.NewTime(t.UTC().Truncate(time.Second)) }

func condition(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message}
}

// conditions sets the times of transition.
func conditions(before []metav1.Condition, now time.Time, list ...metav1.Condition) []metav1.Condition {
	for i := range list {
		list[i].LastTransitionTime = seconds(now)
		for _, old := range before {
			if old.Type == list[i].Type && old.Status == list[i].Status {
				list[i].LastTransitionTime = old.LastTransitionTime
			}
		}
	}
	return list
}
