// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/pkg/apis/tunnel/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/state"
)

// TestAgentFields: the object of an agent has every value that the servers report. Of several links to one server, counts
// add up, the oldest link and the shortest round trip are shown, and an agent drains if all of its links do.
func TestAgentFields(t *testing.T) {
	began := time.Date(2026, 1, 1, 0, 0, 0, 500, time.UTC)
	link := func(after time.Duration, draining bool) state.Link {
		return state.Link{AgentID: "a", Owner: "node-1", Pod: "pod-1", Peer: "192.0.2.1:" + after.String(), AgentVersion: "v1.2.3", Protocol: state.ProtocolFairlead,
			Identifiers: []string{"host=x", "ipv4=192.0.2.1"}, Since: began.Add(after), RTTMicroseconds: 400 - int64(after/time.Minute),
			OpenConnections: 12, PendingDials: 2, DialsTotal: 1840, DialFailures: 3, BytesToAgent: 2100, BytesFromAgent: 911000, Draining: draining}
	}
	since := metav1.NewTime(began.Truncate(time.Second))
	one := v1alpha1.AgentServer{ServerID: "one", Links: 1, Protocol: "fairlead", Peers: []string{"192.0.2.1:0s"}, Since: since, RTTMicroseconds: 400,
		OpenConnections: 12, PendingDials: 2, DialsTotal: 1840, DialFailures: 3, BytesToAgent: 2100, BytesFromAgent: 911000}
	two := v1alpha1.AgentServer{ServerID: "one", Links: 2, Protocol: "fairlead", Peers: []string{"192.0.2.1:0s", "192.0.2.1:1m0s"}, Since: since, RTTMicroseconds: 399,
		OpenConnections: 24, PendingDials: 4, DialsTotal: 3680, DialFailures: 6, BytesToAgent: 4200, BytesFromAgent: 1822000}
	for name, c := range map[string]struct {
		links    []state.Link
		want     v1alpha1.AgentServer
		draining string
	}{
		"one link":        {[]state.Link{link(0, false)}, one, "False TakesDials"},
		"one drains":      {[]state.Link{link(0, true), link(time.Minute, false)}, two, "False TakesDials"},
		"all links drain": {[]state.Link{link(0, true)}, one, "True LinksEnd"},
	} {
		w := newWorld(t, finder{"1": {state: answer("one", c.links...)}})
		w.after(0)
		a, ok := w.agents.objects["a"].(*v1alpha1.TunnelAgent)
		if !ok {
			t.Fatalf("%s: there is no agent: %v", name, w.agents.objects)
		}
		c.want.Draining, c.want.ObservedTime = c.draining == "True LinksEnd", metav1.NewTime(w.now)
		got := a.Status.Conditions
		if len(got) != 2 || got[1].Type != v1alpha1.ConditionDraining || string(got[1].Status)+" "+got[1].Reason != c.draining {
			t.Errorf("%s: conditions %+v, want Draining to be %s", name, got, c.draining)
		}
		a.Status.Conditions = nil
		want := v1alpha1.TunnelAgentStatus{AgentID: "a", NodeName: "node-1", PodName: "pod-1", Version: "v1.2.3",
			Identifiers: []string{"host=x", "ipv4=192.0.2.1"}, Servers: []v1alpha1.AgentServer{c.want}}
		if diff := cmp.Diff(want, a.Status); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if !a.CreationTimestamp.Equal(&since) {
			t.Errorf("%s: created at %v, want %v", name, a.CreationTimestamp, since)
		}
	}
}

// TestServerFields: the object of a server has every value that the server reports of itself. A server without a certificate
// has no time at which it expires.
func TestServerFields(t *testing.T) {
	started := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	expires := started.Add(8760 * time.Hour)
	in := state.Server{ID: "one", Host: "cp-1", ProgramVersion: "v1.2.3", Started: started, Mode: "grpc", Strategies: []string{"destHost", "default"}, Ready: true,
		CountMode: state.CountByLeases, Count: 3, PendingDials: 4, Connections: 5, LocalConnections: 6}
	for name, at := range map[string]*time.Time{"without a certificate": nil, "with a certificate": &expires} {
		st := answer("one", state.Link{AgentID: "a"}, state.Link{AgentID: "a", Peer: "second"}, state.Link{AgentID: "b"})
		st.Server = in
		st.Server.CertificateNotAfter = at
		w := newWorld(t, finder{"unix:///1": {state: st}})
		w.after(0)
		s, ok := w.objects.objects["one"].(*v1alpha1.TunnelServer)
		if !ok {
			t.Fatalf("%s: there is no server: %v", name, w.objects.objects)
		}
		start, observed := metav1.NewTime(started), metav1.NewTime(w.now)
		want := v1alpha1.TunnelServerStatus{ServerID: "one", Host: "cp-1", Address: "unix:///1", Version: "v1.2.3", Mode: "grpc", ProxyStrategies: []string{"destHost", "default"},
			Agents: 2, Links: 3, PendingDials: 4, OpenConnections: 5, LocalConnections: 6, CountMode: "Leases", Count: 3, StartTime: &start, ObservedTime: &observed}
		if at != nil {
			expiration := metav1.NewTime(*at)
			want.CertificateExpirationTime = &expiration
		}
		s.Status.Conditions = nil
		if diff := cmp.Diff(want, s.Status); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
