// SPDX-License-Identifier: Apache-2.0

// Package reach_test proves what the condition TunnelReady and the plugin
// TunnelReach promise on real kubelets: the condition follows the readiness of the
// agents, and no Pod that the control plane must reach is placed on a node without
// one.
package reach_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/e2e-framework/pkg/envconf"
	"sigs.k8s.io/e2e-framework/pkg/features"

	"github.com/fairlead-dev/fairlead/e2e/harness"
	"github.com/fairlead-dev/fairlead/internal/testutil"
)

var suite = harness.New(harness.Options{
	Name: harness.ClusterName("reach"), Only: harness.Kind, Workers: 2,
	Bundle: "scheduler: {builtInProfiles: {spread: {}}, plugins: {tunnelReach: {enabled: true, mode: Require}}}",
})

func TestMain(m *testing.M) { os.Exit(suite.Main(m)) }

const (
	condition = corev1.NodeConditionType("TunnelReady")
	reach     = "fairlead.dev/tunnel-reach"
	agents    = "konnectivity-agent"

	// settled is for Pods to end and start, for their readiness and for what follows from it.
	settled = 3 * time.Minute
)

// TestTunnelReady removes a node's agent and restores it.
func TestTunnelReady(t *testing.T) {
	testutil.Limit(t, 3*settled)
	suite.Test(t, features.New("TunnelReady").Assess("follows the agents", func(ctx context.Context, t *testing.T, _ *envconf.Config) context.Context {
		workers := suite.Nodes.Workers
		without, with := workers[0].String(), workers[1].String()
		reached(ctx, t, without, with)

		back := agentsOff(ctx, t, without)
		reached(ctx, t, with)

		const n = 6
		createMany(ctx, t, "any", n, nil)
		createMany(ctx, t, "must-be-reached", n, func(p *corev1.Pod) { p.Labels[reach] = "true" })
		if got := nodesOf(ctx, t, "any", n); got[without] == 0 || got[with] == 0 {
			t.Errorf("Pods that need not be reached are on %v: it proves nothing that the others are not on %s", got, without)
		}
		if got := nodesOf(ctx, t, "must-be-reached", n); got[with] != n {
			t.Errorf("Pods that must be reached are on %v, want all on %s", got, with)
		}

		pinned := newPod("pinned", func(p *corev1.Pod) {
			p.Labels[reach] = "true"
			p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: without}
		})
		create(ctx, t, pinned)
		refused(ctx, t, "pinned-0")
		back()
		reached(ctx, t, without, with)
		if got := nodesOf(ctx, t, "pinned", 1); got[without] != 1 {
			t.Errorf("with the agent back the Pod is on %v", got)
		}
		return ctx
	}).Feature())
}

// reached waits until the condition is True on just these nodes; all have it, with a heartbeat. On the control plane there
// is no agent.
func reached(ctx context.Context, t *testing.T, want ...string) {
	t.Helper()
	err := harness.Wait(ctx, settled, fmt.Sprintf("TunnelReady on %v alone", want), func(ctx context.Context) error {
		nodes, err := suite.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		var got []string
		for _, n := range nodes.Items {
			i := slices.IndexFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == condition })
			if i < 0 || n.Status.Conditions[i].LastHeartbeatTime.IsZero() {
				return fmt.Errorf("%s has no such condition, or one without a heartbeat", n.Name)
			}
			if n.Status.Conditions[i].Status == corev1.ConditionTrue {
				got = append(got, n.Name)
			}
		}
		slices.Sort(got)
		if slices.Sort(want); !slices.Equal(got, want) {
			return fmt.Errorf("it is True on %v", got)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// agentsOff excludes a node from the agents' DaemonSet, and returns when the
// rollout is complete. back undoes it.
func agentsOff(ctx context.Context, t *testing.T, node string) (back func()) {
	t.Helper()
	sets := suite.Client.AppsV1().DaemonSets(metav1.NamespaceSystem)
	ds, err := sets.Get(ctx, agents, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	before := ds.Spec.Template.Spec.Affinity
	term := corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
		{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpNotIn, Values: []string{node}},
	}}
	if before != nil {
		t.Fatalf("the agents have an affinity of their own: %v", before)
	}
	rollOut(ctx, t, &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{term}},
	}})
	return func() { rollOut(ctx, t, before) }
}

func rollOut(ctx context.Context, t *testing.T, affinity *corev1.Affinity) {
	t.Helper()
	sets := suite.Client.AppsV1().DaemonSets(metav1.NamespaceSystem)
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"affinity": affinity}}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sets.Patch(ctx, agents, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	err = harness.Wait(ctx, settled, "the agents to be rolled out", func(ctx context.Context) error {
		ds, err := sets.Get(ctx, agents, metav1.GetOptions{})
		if err != nil {
			return err
		}
		s := ds.Status
		if s.ObservedGeneration < ds.Generation || s.UpdatedNumberScheduled < s.DesiredNumberScheduled ||
			s.NumberReady < s.DesiredNumberScheduled || s.NumberMisscheduled > 0 {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func newPod(app string, change func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: app + "-0", Namespace: metav1.NamespaceDefault, Labels: map[string]string{"app": app}},
		Spec: corev1.PodSpec{
			SchedulerName: "fairlead-spread", AutomountServiceAccountToken: ptr.To(false), TerminationGracePeriodSeconds: ptr.To[int64](0),
			// It is placed, which is all that is asked for here; there need not be such an image.
			Containers: []corev1.Container{{Name: "pause", Image: "pause", ImagePullPolicy: corev1.PullNever}},
		},
	}
	if change != nil {
		change(pod)
	}
	return pod
}

func createMany(ctx context.Context, t *testing.T, app string, n int, change func(*corev1.Pod)) {
	t.Helper()
	for i := range n {
		pod := newPod(app, change)
		pod.Name = fmt.Sprintf("%s-%d", app, i)
		create(ctx, t, pod)
	}
}

func create(ctx context.Context, t *testing.T, pod *corev1.Pod) {
	t.Helper()
	if _, err := suite.Client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// nodesOf counts the Pods of an app by node, once all have one.
func nodesOf(ctx context.Context, t *testing.T, app string, n int) map[string]int {
	t.Helper()
	got := map[string]int{}
	err := harness.Wait(ctx, settled, app+" to be placed", func(ctx context.Context) error {
		clear(got)
		pods, err := suite.Client.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{LabelSelector: "app=" + app})
		if err != nil {
			return err
		}
		for _, p := range pods.Items {
			if p.Spec.NodeName == "" {
				return fmt.Errorf("%s has no node: %+v", p.Name, p.Status.Conditions)
			}
			got[p.Spec.NodeName]++
		}
		if len(pods.Items) != n {
			return fmt.Errorf("there are %d Pods", len(pods.Items))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// refused waits until a Pod's condition says that it needs an agent.
func refused(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	err := harness.Wait(ctx, settled, name+" to be refused", func(ctx context.Context) error {
		pod, err := suite.Client.CoreV1().Pods(metav1.NamespaceDefault).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && strings.Contains(c.Message, "no live tunnel agent") {
				return nil
			}
		}
		return fmt.Errorf("node %q, conditions %+v", pod.Spec.NodeName, pod.Status.Conditions)
	})
	if err != nil {
		t.Fatal(err)
	}
}
