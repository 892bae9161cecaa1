// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/pkg/apis/tunnel/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/state"
)

// unknownServer is the name of the object of a server that has never answered: its ID is not known.
func unknownServer(s *server) string { return "unknown-" + nameFor(s.address) }

// serverObject makes the object of a server.
func (c *Collector) serverObject(name string, s *server, before *v1alpha1.TunnelServer, now time.Time) *v1alpha1.TunnelServer {
	o := &v1alpha1.TunnelServer{}
	o.Name, o.Status.Address = name, s.address
	var old []metav1.Condition
	if before != nil {
		old, o.CreationTimestamp = before.Status.Conditions, before.CreationTimestamp
	}
	if s.state == nil {
		o.UID = uidFor("server", "", s.address)
		if before == nil {
			o.CreationTimestamp = seconds(now)
		}
		o.Status.Conditions = conditions(old, now, c.reachable(s, now),
			condition(v1alpha1.ConditionReady, metav1.ConditionUnknown, "NoAnswer", "The server has not shown its state."))
		return o
	}
	o.UID, o.CreationTimestamp = uidFor("server", s.state.Server.ID), seconds(s.state.Server.Started)
	describe(&o.Status, s.state, s.at)
	ready := condition(v1alpha1.ConditionReady, metav1.ConditionTrue, "AgentTakesDials", "An agent takes new dials.")
	switch {
	case !c.fresh(s, now):
		ready = condition(v1alpha1.ConditionReady, metav1.ConditionUnknown, "NoAnswer", "The server has stopped to show its state.")
	case s.state.Server.Stopping:
		ready = condition(v1alpha1.ConditionReady, metav1.ConditionFalse, "Stopping", "The server stops: it takes no new dials.")
	case !s.state.Server.Ready:
		ready = condition(v1alpha1.ConditionReady, metav1.ConditionFalse, "NoAgent", "No connected agent takes new dials.")
	}
	o.Status.Conditions = conditions(old, now, c.reachable(s, now), ready)
	return o
}

// describe copies what the server says of itself.
func describe(out *v1alpha1.TunnelServerStatus, st *state.State, at time.Time) {
	in := &st.Server
	agents := map[agentKey]bool{}
	for _, l := range st.Links {
		agents[agentKey{l.AgentID, l.Owner}] = true
	}
	started, observed := seconds(in.Started), seconds(at)
	out.ServerID, out.Host, out.Version, out.Mode, out.ProxyStrategies = in.ID, in.Host, in.ProgramVersion, in.Mode, in.Strategies
	out.Agents, out.Links = int32(len(agents)), int32(len(st.Links))
	out.PendingDials, out.OpenConnections, out.LocalConnections = in.PendingDials, in.Connections, in.LocalConnections
	out.CountMode, out.Count = in.CountMode, int32(in.Count)
	out.StartTime, out.ObservedTime = &started, &observed
	if in.CertificateNotAfter != nil {
		expires := seconds(*in.CertificateNotAfter)
		out.CertificateExpirationTime = &expires
	}
}

// reachable is the condition that says whether, and why not, a server shows its state. One failed request is no reason
// for another condition.
func (c *Collector) reachable(s *server, now time.Time) metav1.Condition {
	if c.fresh(s, now) {
		return condition(v1alpha1.ConditionReachable, metav1.ConditionTrue, "Answers", "The server shows its state.")
	}
	reason, message := "NoAnswer", "The server has not answered in time."
	if s.err != nil {
		message = s.err.Error()
	}
	if errors.Is(s.err, state.ErrOlder) {
		reason = "NotSupported"
	}
	return condition(v1alpha1.ConditionReachable, metav1.ConditionFalse, reason, message)
}
