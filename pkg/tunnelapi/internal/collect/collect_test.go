// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fairlead-dev/fairlead/pkg/apis/tunnel/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/state"
)

// sink keeps objects by name, and counts what is written.
type sink struct {
	objects map[string]runtime.Object
	writes  int
	removed []string
}

func (s *sink) Put(key string, obj runtime.Object) error {
	s.objects[strings.TrimPrefix(key, "/")] = obj
	s.writes++
	return nil
}

func (s *sink) Remove(key string) error {
	delete(s.objects, strings.TrimPrefix(key, "/"))
	s.writes++
	s.removed = append(s.removed, strings.TrimPrefix(key, "/"))
	return nil
}

// fake is a server whose answer the test sets. It is also the finder of servers.
type fake struct {
	state *state.State
	err   error
}

func (f *fake) State(context.Context) (*state.State, error) { return f.state, f.err }
func (f *fake) Connections(context.Context, int64, int) (*state.Connections, error) {
	return nil, errors.New("not asked")
}

type finder map[string]*fake

func (f finder) Find(context.Context) (map[string]Asker, error) {
	out := map[string]Asker{}
	for address, s := range f {
		out[address] = s
	}
	return out, nil
}

// world is a collector with a clock that the test moves.
type world struct {
	t               *testing.T
	now             time.Time
	servers         finder
	agents, objects *sink
	c               *Collector
}

func newWorld(t *testing.T, servers finder) *world {
	w := &world{t: t, now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), servers: servers,
		agents: &sink{objects: map[string]runtime.Object{}}, objects: &sink{objects: map[string]runtime.Object{}}}
	w.c = New(Config{Finder: servers, Agents: w.agents, Servers: w.objects, AgentsPrefix: "/", ServersPrefix: "/", MaxGone: 2, Now: func() time.Time { return w.now }})
	return w
}

// after moves the clock and collects.
func (w *world) after(d time.Duration) {
	w.now = w.now.Add(d)
	for _, s := range w.servers {
		if s.state != nil {
			s.state.Time = w.now
		}
	}
	w.c.Round(w.t.Context())
}

// condition is the status of a condition of an agent, "" if there is no such agent.
func (w *world) condition(agent string) string {
	a, ok := w.agents.objects[agent].(*v1alpha1.TunnelAgent)
	if !ok {
		return ""
	}
	return string(a.Status.Conditions[0].Status)
}

func answer(id string, links ...state.Link) *state.State {
	return &state.State{Version: 1, Server: state.Server{ID: id, Ready: len(links) > 0}, Links: links}
}

// TestAgentComesAndGoes: an agent is connected while a server that answers has a link to it, unknown when only a server
// that has stopped to answer had one, gone when no server has one, and forgotten after a while.
func TestAgentComesAndGoes(t *testing.T) {
	one, two := &fake{state: answer("one", state.Link{AgentID: "a"})}, &fake{state: answer("two", state.Link{AgentID: "a"})}
	w := newWorld(t, finder{"1": one, "2": two})
	steps := []struct {
		name string
		do   func()
		wait time.Duration
		want string
	}{
		{"at both", func() {}, time.Second, "True"},
		{"one is late", func() { one.err = errors.New("no answer") }, 5 * time.Second, "True"},
		{"one is lost", func() {}, 10 * time.Second, "True"},
		{"both are lost", func() { two.err = errors.New("no answer") }, 15 * time.Second, "Unknown"},
		{"one is back", func() { one.err = nil }, time.Second, "True"},
		{"the agent leaves one", func() { one.state.Links, two.err = nil, nil }, time.Second, "True"},
		{"the agent leaves both", func() { two.state.Links = nil }, time.Second, "False"},
		{"some time later", func() {}, 9 * time.Minute, "False"},
		{"long after", func() {}, 2 * time.Minute, ""},
	}
	for _, s := range steps {
		s.do()
		w.after(s.wait)
		if got := w.condition("a"); got != s.want {
			t.Errorf("%s: Connected is %q, want %q", s.name, got, s.want)
		}
	}
}

// TestDeadServer: an agent shows that a server which it had a link to has stopped to show its state. After a while
// neither the server nor its links are shown, although its address is still found.
func TestDeadServer(t *testing.T) {
	one, two := &fake{state: answer("one", state.Link{AgentID: "a"})}, &fake{state: answer("two", state.Link{AgentID: "a"}, state.Link{AgentID: "b"})}
	w := newWorld(t, finder{"1": one, "2": two})
	w.c.cfg.CountsInterval = 24 * time.Hour // that a server is stale shows at once
	shown := func() string {
		var out []string
		for _, s := range w.agents.objects["a"].(*v1alpha1.TunnelAgent).Status.Servers {
			out = append(out, fmt.Sprintf("%s stale=%t", s.ServerID, s.Stale))
		}
		return fmt.Sprintf("%v, servers %v, b=%s", out, slices.Sorted(maps.Keys(w.objects.objects)), w.condition("b"))
	}
	w.after(0)
	two.err = errors.New("no answer")
	for _, step := range []struct {
		wait time.Duration
		want string
	}{
		{9 * time.Second, "[one stale=false two stale=false], servers [one two], b=True"},
		{2 * time.Second, "[one stale=false two stale=true], servers [one two], b=Unknown"},
		{9 * time.Minute, "[one stale=false two stale=true], servers [one two], b=Unknown"},
		{time.Minute, "[one stale=false], servers [one], b=False"},
		{11 * time.Minute, "[one stale=false], servers [one], b="},
	} {
		w.after(step.wait)
		if got := shown(); got != step.want {
			t.Errorf("after %v more: %s, want %s", step.wait, got, step.want)
		}
	}
	two.err = nil
	w.after(time.Second)
	if got, want := shown(), "[one stale=false two stale=false], servers [one two], b=True"; got != want {
		t.Errorf("when the server is back: %s, want %s", got, want)
	}
}

// TestAllServersDead: when no server has answered for long, the servers and their agents are still shown, as unreachable
// and unknown.
func TestAllServersDead(t *testing.T) {
	one, two := &fake{state: answer("one", state.Link{AgentID: "a"})}, &fake{state: answer("two", state.Link{AgentID: "a"})}
	w := newWorld(t, finder{"1": one, "2": two})
	w.after(0)
	one.err, two.err = errors.New("no answer"), errors.New("no answer")
	for _, wait := range []time.Duration{11 * time.Minute, time.Hour} {
		w.after(wait)
		for _, name := range []string{"one", "two"} {
			if s, ok := w.objects.objects[name].(*v1alpha1.TunnelServer); !ok || s.Status.Conditions[0].Status != metav1.ConditionFalse {
				t.Errorf("after %v more: server %s is %+v", wait, name, s)
			}
		}
		if got := w.condition("a"); got != "Unknown" {
			t.Errorf("after %v more: Connected is %q", wait, got)
		}
	}
}

// TestPod: an agent shows the Pod of its newest link, and none if the servers know none.
func TestPod(t *testing.T) {
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	first := state.Link{AgentID: "a", Pod: "first", Since: began}
	second := state.Link{AgentID: "a", Pod: "second", Since: began.Add(time.Minute)}
	older := state.Link{AgentID: "a", Since: began.Add(time.Hour)}
	one, two := &fake{state: answer("one")}, &fake{state: answer("two")}
	w := newWorld(t, finder{"1": one, "2": two})
	for _, c := range []struct {
		one, two []state.Link
		fail     error
		want     string
	}{
		{[]state.Link{older}, nil, nil, ""},
		{[]state.Link{first}, nil, nil, "first"},
		{[]state.Link{first}, []state.Link{second}, nil, "second"},
		{[]state.Link{second, first, older}, nil, nil, "second"},
		{[]state.Link{first}, []state.Link{second}, errors.New("no answer"), "first"},
	} {
		one.state.Links, two.state.Links, two.err = c.one, c.two, nil
		w.after(time.Second)
		two.err = c.fail
		w.after(time.Minute)
		if got := w.agents.objects["a"].(*v1alpha1.TunnelAgent).Status.PodName; got != c.want {
			t.Errorf("links %v and %v: the Pod is %q, want %q", c.one, c.two, got, c.want)
		}
	}
}

// TestCountsAreBounded: a change of counts alone is written once in ten seconds, every other change at once.
func TestCountsAreBounded(t *testing.T) {
	s := &fake{state: answer("one", state.Link{AgentID: "a"})}
	w := newWorld(t, finder{"1": s})
	for range 60 {
		s.state.Links[0].BytesToAgent++
		w.after(time.Second)
	}
	if w.agents.writes < 6 || w.agents.writes > 7 {
		t.Errorf("%d writes in a minute", w.agents.writes)
	}
	before := w.agents.writes
	s.state.Links[0].Draining = true
	w.after(time.Second)
	if w.agents.writes != before+1 {
		t.Error("a change of draining was not written at once")
	}
	before = w.agents.writes
	for range 60 {
		w.after(time.Second)
	}
	if w.agents.writes > before+1 {
		t.Errorf("%d writes without a change", w.agents.writes-before)
	}
	w.after(-24 * time.Hour) // the machine's clock is set back
	before = w.agents.writes
	for range 60 {
		s.state.Links[0].BytesToAgent++
		w.after(time.Second)
	}
	if n := w.agents.writes - before; n < 6 || n > 7 {
		t.Errorf("%d writes in a minute after the clock was set back", n)
	}
}

// TestServerReasons: a server that does not answer, never answered or is older is shown with the reason and the age of
// what is known.
func TestServerReasons(t *testing.T) {
	good, old, dead := &fake{state: answer("good")}, &fake{err: state.ErrOlder}, &fake{err: errors.New("connection refused")}
	w := newWorld(t, finder{"1": good, "2": old, "3": dead})
	w.after(0)
	observed := metav1.NewTime(w.now)
	good.err = errors.New("frozen")
	w.after(time.Minute)
	got := map[string]string{}
	for name, o := range w.objects.objects {
		s := o.(*v1alpha1.TunnelServer)
		got[name] = fmt.Sprintf("%s %s %s", s.Status.Conditions[0].Status, s.Status.Conditions[0].Reason, s.Status.Conditions[0].Message)
		if name == "good" && !s.Status.ObservedTime.Equal(&observed) {
			t.Errorf("observed at %v, want %v", s.Status.ObservedTime, observed)
		}
	}
	want := map[string]string{"good": "False NoAnswer frozen", "unknown-2": "False NotSupported " + state.ErrOlder.Error(), "unknown-3": "False NoAnswer connection refused"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestServerStops: a server that stops is shown as that while it answers, also if agents still take dials.
func TestServerStops(t *testing.T) {
	f := &fake{state: answer("one", state.Link{AgentID: "a"})}
	w := newWorld(t, finder{"1": f})
	for stopping, want := range map[bool]string{false: "True AgentTakesDials", true: "False Stopping"} {
		f.state.Server.Stopping = stopping
		w.after(time.Minute)
		got := ""
		for _, c := range w.objects.objects["one"].(*v1alpha1.TunnelServer).Status.Conditions {
			if c.Type == v1alpha1.ConditionReady {
				got = string(c.Status) + " " + c.Reason
			}
		}
		if got != want {
			t.Errorf("stopping %v: condition Ready is %s, want %s", stopping, got, want)
		}
	}
}

// TestNames: each ID of an agent becomes a name that the API accepts, and different agents get different names, also if
// one chooses what another's name would be.
func TestNames(t *testing.T) {
	ids := []agentKey{{"a", ""}, {"A", ""}, {"a/b", ""}, {"ä", ""}, {"", "n"}, {strings.Repeat("x", 256), ""}, {"a", "node-1"}, {"a", "node-2"}, {nameFor("A"), ""}}
	all := map[agentKey][]fromServer{}
	for _, id := range ids {
		all[id] = nil
	}
	names := agentNames(all, nil)
	unique := slices.Compact(slices.Sorted(maps.Values(names)))
	if len(unique) != len(ids) {
		t.Errorf("%d agents have the names %v", len(ids), unique)
	}
	for key, name := range names {
		if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
			t.Errorf("%q has the name %q: %v", key, name, problems)
		}
	}
}

// TestNameOfAnother: an agent that takes over the ID of another, whose links have ended, takes over nothing else of its
// object: clients see that one deleted, and a new one created.
func TestNameOfAnother(t *testing.T) {
	s := &fake{state: answer("one", state.Link{AgentID: "a", Owner: "node-b"})}
	w := newWorld(t, finder{"1": s})
	w.after(time.Second)
	before := w.agents.objects["a"].(*v1alpha1.TunnelAgent)
	s.state.Links[0].Owner = "node-a"
	w.after(time.Second)
	after := w.agents.objects["a"].(*v1alpha1.TunnelAgent)
	if after.Status.NodeName != "node-a" || after.Labels[LabelNode] != "node-a" || after.UID == before.UID || after.UID != uidFor("agent", "a", "node-a") {
		t.Errorf("the agent of node-a: %+v, that of node-b before: %+v", after, before)
	}
	if !slices.Equal(w.agents.removed, []string{"a"}) {
		t.Errorf("removed: %v", w.agents.removed)
	}
}

// TestTakenID: an agent that chooses the ID of another one, or the name that another one has because of its ID, does not
// get that one's name, whatever the order of their owners. In a process that starts later, the agent with the older link
// has the name of the ID.
func TestTakenID(t *testing.T) {
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	victim := state.Link{AgentID: "a", Owner: "node-b", Since: began}
	second := state.Link{AgentID: "a", Owner: "node-c", Since: began.Add(time.Minute)}
	for name, attacker := range map[string]state.Link{
		"the same ID":           {AgentID: "a", Owner: "node-a", Since: began.Add(time.Hour)},
		"the same ID, later":    {AgentID: "a", Owner: "node-x", Since: began.Add(time.Hour)},
		"the name of the other": {AgentID: readable("a") + hash("a", "node-c"), Owner: "node-a", Since: began.Add(time.Hour)},
	} {
		t.Run(name, func(t *testing.T) {
			s := &fake{state: answer("one", victim, second)}
			running, later := newWorld(t, finder{"1": s}), newWorld(t, finder{"1": s})
			running.after(time.Second)
			s.state.Links = []state.Link{attacker, victim, second}
			running.after(time.Second)
			later.after(time.Second)
			for when, w := range map[string]*world{"before": running, "later": later} {
				owners := map[string]string{}
				for name, o := range w.agents.objects {
					owners[name] = o.(*v1alpha1.TunnelAgent).Status.NodeName
				}
				if len(owners) != 3 || owners["a"] != "node-b" || owners[readable("a")+hash("a", "node-c")] != "node-c" {
					t.Errorf("a process that started %s has the agents %v", when, owners)
				}
			}
			s.state.Links = []state.Link{attacker, second}
			running.after(time.Second)
			back := victim
			back.Since = began.Add(2 * time.Hour)
			s.state.Links = []state.Link{attacker, back, second}
			running.after(time.Second)
			if a := running.agents.objects["a"].(*v1alpha1.TunnelAgent); a.Status.NodeName != "node-b" || running.condition("a") != "True" {
				t.Errorf("the agent that comes back is %+v", a.Status)
			}
		})
	}
}

// TestGoneAreBounded: of many agents that come and go, only the last ones stay.
func TestGoneAreBounded(t *testing.T) {
	s := &fake{state: answer("one")}
	w := newWorld(t, finder{"1": s})
	for i := range 10 {
		s.state.Links = []state.Link{{AgentID: fmt.Sprint("a", i)}}
		w.after(time.Second)
	}
	if got := slices.Sorted(maps.Keys(w.agents.objects)); !slices.Equal(got, []string{"a7", "a8", "a9"}) {
		t.Errorf("agents: %v", got)
	}
}
