// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/fairlead-dev/fairlead/pkg/apis/tunnel/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunneltest"
)

// carrying is two real servers: "one" has the agent of node-1, which carries two connections, and Two_2 that of node-2,
// which carries another.
type carrying struct {
	one, two      *tunneltest.Rig
	first, second *tunneltest.Agent
	target        string
	agents, conns dynamic.ResourceInterface
}

func newCarrying(t *testing.T) *carrying {
	t.Helper()
	c := &carrying{one: tunneltest.NewRig(t, server.Config{ServerID: "one", Tokens: podTokens{}}), two: tunneltest.NewRig(t, server.Config{ServerID: "Two_2", Tokens: podTokens{}})}
	launched := func(r *tunneltest.Rig, id, token string) *tunneltest.Agent {
		return r.StartAgent(agent.Config{AgentID: id, Identifiers: "host=" + id, Token: func() (string, error) { return token, nil }}, "")
	}
	c.first, c.second = launched(c.one, "a1", "node-1/pod-1"), launched(c.two, "a2", "node-2/pod-2")
	c.target = tunneltest.Target(t, tunneltest.Echo)
	for _, r := range []*tunneltest.Rig{c.one, c.one, c.two} {
		conn := tunneltest.MustDial(t, tunneltest.Connect(r.Connect), c.target)
		if _, err := conn.Write([]byte("ping")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(conn, make([]byte, 4)); err != nil {
			t.Fatal(err)
		}
	}
	client, err := dynamic.NewForConfig(start(t, "unix://"+showState(t, c.one), "unix://"+showState(t, c.two)))
	if err != nil {
		t.Fatal(err)
	}
	c.agents = client.Resource(v1alpha1.SchemeGroupVersion.WithResource("tunnelagents"))
	c.conns = client.Resource(v1alpha1.SchemeGroupVersion.WithResource("tunnelconnections"))
	return c
}

// TestSelectors: lists of connections and agents have what their selectors match, and nothing else, by field and by label.
func TestSelectors(t *testing.T) {
	t.Parallel()
	c := newCarrying(t)
	both := func(label, field string) metav1.ListOptions {
		return metav1.ListOptions{LabelSelector: label, FieldSelector: field}
	}
	const node = "tunnel.fairlead.dev/node"
	for _, s := range []struct {
		of   dynamic.ResourceInterface
		opts metav1.ListOptions
		want map[string]int // objects by node
	}{
		{c.conns, both("", ""), map[string]int{"node-1": 2, "node-2": 1}},
		{c.conns, both("", "status.serverID=one"), map[string]int{"node-1": 2}},
		{c.conns, both("", "status.serverID!=one"), map[string]int{"node-2": 1}},
		{c.conns, both("", "status.serverID=Two_2,status.nodeName=node-2"), map[string]int{"node-2": 1}},
		{c.conns, both("", "status.serverID=one,status.nodeName=node-2"), map[string]int{}},
		{c.conns, both("", "status.nodeName=node-1"), map[string]int{"node-1": 2}},
		{c.conns, both("", "status.nodeName!=node-1"), map[string]int{"node-2": 1}},
		{c.conns, both("", "status.agentID=a2"), map[string]int{"node-2": 1}},
		{c.conns, both(node+"=node-1", ""), map[string]int{"node-1": 2}},
		{c.conns, both(node+"=node-1", "status.serverID=Two_2"), map[string]int{}},
		{c.conns, both(node+" in (node-1, node-2)", ""), map[string]int{"node-1": 2, "node-2": 1}},
		{c.conns, both("!"+node, ""), map[string]int{}},
		{c.agents, both(node+"=node-1", ""), map[string]int{"node-1": 1}},
		{c.agents, both(node+"!=node-1", ""), map[string]int{"node-2": 1}},
		{c.agents, both(node, "status.nodeName=node-2"), map[string]int{"node-2": 1}},
		{c.agents, both("!"+node, ""), map[string]int{}},
	} {
		list, err := s.of.List(t.Context(), s.opts)
		if err != nil {
			t.Fatalf("%+v: %v", s.opts, err)
		}
		got := map[string]int{}
		for i := range list.Items {
			name, _, _ := unstructured.NestedString(list.Items[i].Object, "status", "nodeName")
			if list.Items[i].GetLabels()[node] != name {
				t.Errorf("an object of %s has the labels %v", name, list.Items[i].GetLabels())
			}
			got[name]++
		}
		if diff := cmp.Diff(s.want, got); diff != "" {
			t.Errorf("labels %q, fields %q (-want +got):\n%s", s.opts.LabelSelector, s.opts.FieldSelector, diff)
		}
	}
}

// TestWatchSelectors: a watch with a selector has the events of what matches, and none of another agent that changes first.
func TestWatchSelectors(t *testing.T) {
	t.Parallel()
	c := newCarrying(t)
	limit := int64(120)
	label, err := c.agents.Watch(t.Context(), metav1.ListOptions{LabelSelector: "tunnel.fairlead.dev/node=node-2", TimeoutSeconds: &limit})
	if err != nil {
		t.Fatal(err)
	}
	defer label.Stop()
	field, err := c.agents.Watch(t.Context(), metav1.ListOptions{FieldSelector: "status.nodeName=node-2", TimeoutSeconds: &limit})
	if err != nil {
		t.Fatal(err)
	}
	defer field.Stop()
	c.first.Stop()
	tunneltest.Eventually(t, tunneltest.Patience, "the first agent has gone", func() bool {
		o, err := c.agents.Get(t.Context(), "a1", metav1.GetOptions{})
		return err == nil && connected(o) == "False"
	})
	c.second.Stop()
	for name, events := range map[string]watch.Interface{"label": label, "field": field} {
		gone := false
		for e := range events.ResultChan() {
			o, ok := e.Object.(*unstructured.Unstructured)
			if !ok || o.GetName() != "a2" {
				t.Fatalf("%s: event %s of %v", name, e.Type, e.Object)
			}
			if gone = connected(o) == "False"; gone {
				break
			}
		}
		if !gone {
			t.Errorf("%s: the watch ended before the agent had gone", name)
		}
	}
}

// TestLiveFields: objects have what real servers count of real agents: connections, dials, failures, bytes, and that an agent
// drains.
func TestLiveFields(t *testing.T) {
	t.Parallel()
	c := newCarrying(t)
	ctx, cancel := context.WithTimeout(t.Context(), tunneltest.Patience)
	defer cancel()
	if conn, err := tunneltest.Connect(c.one.Connect)(ctx, "127.0.0.1:1"); err == nil {
		_ = conn.Close()
		t.Fatal("a port that should be closed is open")
	}
	read := func(name string) *v1alpha1.TunnelAgent {
		o, err := c.agents.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		a := &v1alpha1.TunnelAgent{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, a); err != nil {
			t.Fatal(err)
		}
		return a
	}
	go c.first.Drain(ctx) // it waits for the connections, which stay open
	var a *v1alpha1.TunnelAgent
	defer func() {
		if t.Failed() {
			text, _ := json.MarshalIndent(a, "", "  ")
			t.Logf("%s", text)
		}
	}()
	tunneltest.Eventually(t, tunneltest.Patience, "the agent has the values of its server", func() bool {
		a = read("a1")
		if len(a.Status.Servers) != 1 {
			return false
		}
		s := a.Status.Servers[0]
		return s.Draining && s.OpenConnections == 2 && s.DialsTotal == 3 && s.DialFailures == 1 && s.BytesToAgent >= 8 && s.BytesFromAgent >= 8 &&
			s.RTTMicroseconds > 0 && !s.Since.IsZero() && s.Links >= 1 && s.Protocol == "fairlead" && a.Status.Version != "" && fmt.Sprint(a.Status.Identifiers) == "[host=a1]"
	})
	for selector, want := range map[string]string{"status.draining=true": "a1", "status.draining=false": "a2"} {
		list, err := c.agents.List(t.Context(), metav1.ListOptions{FieldSelector: selector})
		if err != nil || len(list.Items) != 1 || list.Items[0].GetName() != want {
			t.Errorf("%s: %v, %v", selector, list, err)
		}
	}
	for _, condition := range a.Status.Conditions {
		if condition.Type == v1alpha1.ConditionDraining && condition.Status != metav1.ConditionTrue {
			t.Errorf("%+v", condition)
		}
	}
}
