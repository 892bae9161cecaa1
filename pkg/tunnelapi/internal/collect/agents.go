// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"cmp"
	"maps"
	"slices"
	"strings"
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

// links are the links of an agent, by the ID of the server.
type links struct {
	fresh, stale map[string][]state.Link
	at           map[string]time.Time // when the server reported them
}

// linksOf returns the links of all agents.
func (c *Collector) linksOf(byID map[string]*server, now time.Time) map[agentKey]*links {
	out := map[agentKey]*links{}
	for id, s := range byID {
		fresh := c.fresh(s, now)
		for _, l := range s.state.Links {
			key := agentKey{l.AgentID, l.Owner}
			a := out[key]
			if a == nil {
				a = &links{fresh: map[string][]state.Link{}, stale: map[string][]state.Link{}, at: map[string]time.Time{}}
				out[key] = a
			}
			if fresh {
				a.fresh[id] = append(a.fresh[id], l)
			} else {
				a.stale[id] = append(a.stale[id], l)
			}
			a.at[id] = s.at
		}
	}
	return out
}

// agentNames gives each agent a name. Agents of several owners that share an ID get names of both.
func agentNames(all map[agentKey]*links) map[agentKey]string {
	keys := slices.SortedFunc(maps.Keys(all), func(a, b agentKey) int {
		return cmp.Or(cmp.Compare(a.id, b.id), cmp.Compare(a.owner, b.owner))
	})
	names, taken := map[agentKey]string{}, map[string]bool{}
	for _, k := range keys {
		name := nameFor(k.id)
		if taken[name] {
			name = readable(k.id) + hash(k.id, k.owner)
		}
		names[k], taken[name] = name, true
	}
	return names
}

// agent makes the object of an agent that a server reports. before is the object as it was, or nil.
func agent(name string, key agentKey, l *links, before *v1alpha1.TunnelAgent, now time.Time) *v1alpha1.TunnelAgent {
	a := &v1alpha1.TunnelAgent{}
	a.Name, a.UID = name, uidFor("agent", key.id, key.owner)
	a.Status.AgentID, a.Status.NodeName = key.id, key.owner
	if key.owner != "" && len(validation.IsValidLabelValue(key.owner)) == 0 {
		a.Labels = map[string]string{LabelNode: key.owner}
	}
	draining := true
	for _, set := range []map[string][]state.Link{l.fresh, l.stale} {
		for id, ls := range set {
			s := agentServer(id, ls, l.at[id])
			draining = draining && s.Draining
			a.Status.Servers = append(a.Status.Servers, s)
			a.Status.Version = cmp.Or(ls[0].AgentVersion, a.Status.Version)
			if a.Status.Identifiers == nil {
				a.Status.Identifiers = ls[0].Identifiers
			}
			if a.CreationTimestamp.IsZero() || s.Since.Before(&a.CreationTimestamp) {
				a.CreationTimestamp = s.Since
			}
		}
	}
	slices.SortFunc(a.Status.Servers, func(x, y v1alpha1.AgentServer) int { return strings.Compare(x.ServerID, y.ServerID) })
	connected := condition(v1alpha1.ConditionConnected, metav1.ConditionTrue, "LinkEstablished", "A konnectivity-server has a link to the agent.")
	if len(l.fresh) == 0 {
		connected = condition(v1alpha1.ConditionConnected, metav1.ConditionUnknown, "ServerUnreachable",
			"No konnectivity-server that had a link to the agent shows its state now.")
	}
	drain := condition(v1alpha1.ConditionDraining, metav1.ConditionFalse, "TakesDials", "A link to the agent takes new dials.")
	if draining {
		drain = condition(v1alpha1.ConditionDraining, metav1.ConditionTrue, "LinksEnd", "All links to the agent end when their connections have ended.")
	}
	var old []metav1.Condition
	if before != nil {
		old, a.CreationTimestamp = before.Status.Conditions, before.CreationTimestamp
	}
	a.Status.Conditions = conditions(old, now, connected, drain)
	return a
}

// agentServer sums up the links of an agent to one server.
func agentServer(id string, ls []state.Link, at time.Time) v1alpha1.AgentServer {
	s := v1alpha1.AgentServer{ServerID: id, Links: int32(len(ls)), Protocol: ls[0].Protocol, Draining: true, Silent: true, ObservedTime: seconds(at)}
	for _, l := range ls {
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
