// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	bundlescheduler "github.com/fairlead-dev/fairlead/pkg/bundle/scheduler"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
	"github.com/fairlead-dev/fairlead/pkg/scheduler/pluginargs"
	"github.com/fairlead-dev/fairlead/pkg/scheduler/plugins/tunnelreach"
)

// reaching is a bundle of the standard profile with TunnelReach.
func reaching(args pluginargs.TunnelReachArgs) *v1alpha1.Bundle {
	b := &v1alpha1.Bundle{}
	b.Scheduler.BuiltInProfiles.Standard = &v1alpha1.StandardProfile{}
	b.Scheduler.Plugins.TunnelReach = v1alpha1.TunnelReachPlugin{Enabled: new(true), TunnelReachArgs: args}
	return b.Defaulted()
}

// TestReachRequired: pods behind Services that the API server calls run where an agent lives and nowhere else, without a
// label, and anywhere once no agent lives.
func TestReachRequired(t *testing.T) {
	c := crowd{newCluster(t)}
	makeNodes(t, c.Client, 4)
	c.agents(t, corev1.ConditionTrue, "node-001")
	c.agents(t, corev1.ConditionFalse, "node-000", "node-002")
	c.service(t, "hook")
	c.service(t, "extension")
	c.service(t, "unnamed")
	c.webhook(t, "hook")
	c.apiService(t, "extension")
	install(t, c.cluster, reaching(pluginargs.TunnelReachArgs{Mode: pluginargs.ReachRequire}))

	makePods(t, c.Client, "hook", polite, "1", 2, behind("hook"))
	makePods(t, c.Client, "extension", polite, "500m", 3, behind("extension"))
	c.wantOn(t, "hook", 2, "node-001")
	c.wantOn(t, "extension", 3, "node-001")
	// 500m are left on node-001: all of these are elsewhere, or nowhere.
	makePods(t, c.Client, "unnamed", polite, "3", 2, behind("unnamed"))
	makePods(t, c.Client, "opted-out", polite, "3", 1, behind("hook"), labeled("false"))
	waitBound(t, c.Client, "unnamed", 2)
	waitBound(t, c.Client, "opted-out", 1)

	makePods(t, c.Client, "late", polite, "600m", 1, behind("hook"))
	c.waitSays(t, "late", "no live tunnel agent in their "+corev1.LabelHostname)
	if node := c.pod(t, "late").Spec.NodeName; node != "" {
		t.Errorf("the pod is on %s", node)
	}
	c.agents(t, corev1.ConditionFalse, "node-001")
	waitBound(t, c.Client, "late", 1)
	c.waitWarned(t, "late-000", tunnelreach.EventNoAgent)
}

// TestReachPreferred: in every built-in profile, with all its other scores against it, a node with an agent is taken as
// long as there is room, and another one after that. One node without an agent is empty, one is nearly full, and all pods
// of a profile are behind a Service, which makes kube-scheduler spread them.
func TestReachPreferred(t *testing.T) {
	c := crowd{newCluster(t)}
	b := allProfiles()
	profiles := bundlescheduler.ProfileNames(b)
	const each, room = 4, 16 // of 500m on two nodes
	makeNodes(t, c.Client, each*len(profiles))
	nodesOf := func(i int) (nodes []string) {
		for n := range each {
			nodes = append(nodes, fmt.Sprintf("node-%03d", i*each+n))
		}
		return nodes
	}
	for i, profile := range profiles {
		nodes := nodesOf(i)
		c.agents(t, corev1.ConditionTrue, nodes[0], nodes[1])
		makePods(t, c.Client, "full-"+profile, profile, "3", 1, on(nodes[2]))
		c.service(t, profile)
	}
	install(t, c.cluster, b)
	for i, profile := range profiles {
		t.Run(profile, func(t *testing.T) {
			nodes := nodesOf(i)
			makePods(t, c.Client, profile, profile, "500m", room, only(nodes...), labeled("true"), behind(profile))
			c.wantOn(t, profile, room, nodes[0], nodes[1])
			late := "late-" + profile
			makePods(t, c.Client, late, profile, "500m", 2, only(nodes...), labeled("true"), behind(profile))
			c.wantOn(t, late, 2, nodes[2], nodes[3])
			c.waitWarned(t, late+"-000", tunnelreach.EventNotReached)
		})
	}
}

// TestReachZone: with a wider topologyKey an agent stands for all nodes of its zone, and for none of another.
func TestReachZone(t *testing.T) {
	c := crowd{newCluster(t)}
	makeNodes(t, c.Client, 4)
	for node, zone := range map[string]string{"node-000": "near", "node-001": "near", "node-002": "far"} {
		c.changeNode(t, node, func(n *corev1.Node) { n.Labels[corev1.LabelTopologyZone] = zone })
	}
	c.agents(t, corev1.ConditionTrue, "node-000", "node-003") // node-003 is in no zone, and so is its agent
	install(t, c.cluster, reaching(pluginargs.TunnelReachArgs{Mode: pluginargs.ReachRequire, TopologyKey: corev1.LabelTopologyZone}))
	const room = 8 // on two nodes
	makePods(t, c.Client, "near", polite, "1", room, labeled("true"))
	c.wantOn(t, "near", room, "node-000", "node-001")
	makePods(t, c.Client, "late", polite, "1", 1, labeled("true"))
	c.waitSays(t, "late", "2 node(s) had no live tunnel agent in their "+corev1.LabelTopologyZone)
	if node := c.pod(t, "late").Spec.NodeName; node != "" {
		t.Errorf("the pod is on %s", node)
	}
}

// labeled says of a pod whether the control plane must reach it.
func labeled(value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Labels[pluginargs.ReachLabel] = value }
}

// behind puts a pod behind a Service.
func behind(service string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Labels["behind"] = service }
}

func (c crowd) service(t *testing.T, name string) {
	t.Helper()
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{
		Selector: map[string]string{"behind": name}, Ports: []corev1.ServicePort{{Port: 443}},
	}}
	if _, err := c.Client.CoreV1().Services("default").Create(t.Context(), service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// webhook makes the API server call a Service, though only for objects that this test does not create.
func (c crowd) webhook(t *testing.T, service string) {
	t.Helper()
	configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: service},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name:                    "things.example.com",
			ClientConfig:            admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Namespace: "default", Name: service}},
			SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
			AdmissionReviewVersions: []string{"v1"},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{"example.com"}, APIVersions: []string{"v1"}, Resources: []string{"things"}},
			}},
		}},
	}
	if _, err := c.Client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(t.Context(), configuration, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// apiService makes the API server proxy an API group to a Service.
func (c crowd) apiService(t *testing.T, service string) {
	t.Helper()
	create(t, c.cluster, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": map[string]any{"name": "v1.example.com"},
		"spec": map[string]any{
			"group": "example.com", "version": "v1", "groupPriorityMinimum": int64(100), "versionPriority": int64(100), "insecureSkipTLSVerify": true,
			"service": map[string]any{"namespace": "default", "name": service},
		},
	}})
}

func (c crowd) changeNode(t *testing.T, name string, change func(*corev1.Node)) {
	t.Helper()
	node, err := c.Client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	change(node)
	if _, err := c.Client.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// agents sets the conditions of nodes as the controller tunnel-condition would.
func (c crowd) agents(t *testing.T, ready corev1.ConditionStatus, nodes ...string) {
	t.Helper()
	for _, name := range nodes {
		node, err := c.Client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		node.Status.Conditions = slices.DeleteFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == pluginargs.TunnelReadyCondition })
		node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{
			Type: pluginargs.TunnelReadyCondition, Status: ready, LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now(),
		})
		if _, err := c.Client.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// wantOn waits until pods are bound, and wants all of them on these nodes.
func (c crowd) wantOn(t *testing.T, prefix string, n int, nodes ...string) {
	t.Helper()
	used := map[string]int{}
	for pod, node := range waitBound(t, c.Client, prefix, n) {
		if used[node]++; !slices.Contains(nodes, node) {
			t.Errorf("%s is on %s, want one of %v", pod, node, nodes)
		}
	}
	t.Logf("%s: %v", prefix, used)
}

// waitWarned waits for an event of a pod.
func (c crowd) waitWarned(t *testing.T, pod, reason string) {
	t.Helper()
	daemontest.Eventually(t, patience, func() error {
		list, err := c.Client.EventsV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: "reason=" + reason})
		if err != nil {
			return err
		}
		var others []string
		for _, e := range list.Items {
			if e.Regarding.Name == pod {
				return nil
			}
			others = append(others, e.Regarding.Name)
		}
		return fmt.Errorf("%s has no event %s; %s have", pod, reason, strings.Join(others, ", "))
	})
}
