// SPDX-License-Identifier: Apache-2.0

package suite_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/e2e/harness"
)

// A node is drained and stopped for a while, as for a kernel update. The calls
// that its agent carried end, and no client has to dial twice.
func TestNodeDrain(t *testing.T) {
	if suite.Simulated() {
		t.Skip("simulated nodes run no agents that a drain could concern")
	}
	kubectl, err := suite.BuildKubectl(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	run(t, "node drain", 5*time.Minute,
		step{"drain and uncordon: nothing fails", func(ctx context.Context, t *testing.T) {
			node := otherWorker(ctx, t)
			atEnd(ctx, t, func(ctx context.Context) { _, _ = suite.Kubectl(ctx, kubectl, "", "uncordon", node) })
			dials, streams := underLoad(ctx, t, func(ctx context.Context) error {
				if _, err := suite.Kubectl(ctx, kubectl, "", "drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=2m"); err != nil {
					return err
				}
				_, err := suite.Kubectl(ctx, kubectl, "", "uncordon", node)
				return err
			})
			// Drain leaves the Pods of DaemonSets, the agents, where they are.
			if dials.Failed > 0 || len(streams.Broken) > 0 {
				t.Errorf("want that nothing fails: %s\n%s", dials, streams)
			}
		}},
		step{"drain, and the node's agent ends: no dial fails", func(ctx context.Context, t *testing.T) {
			node := otherWorker(ctx, t)
			atEnd(ctx, t, func(ctx context.Context) { _, _ = suite.Kubectl(ctx, kubectl, "", "uncordon", node) })
			dials, streams := underLoad(ctx, t, func(ctx context.Context) error {
				if _, err := suite.Kubectl(ctx, kubectl, "", "drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=2m"); err != nil {
					return err
				}
				return replaceAgent(ctx, node)
			})
			if dials.Failed > 0 {
				t.Errorf("want that no dial fails: %s", dials)
			}
			wantNoDamage(t, streams)
		}},
	)
}

// otherWorker is a worker on which the test server is not.
func otherWorker(ctx context.Context, t *testing.T) string {
	t.Helper()
	pod, err := suite.Client.CoreV1().Pods(harness.Namespace).Get(ctx, harness.ServerName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range suite.Nodes.Workers {
		if n.String() != pod.Spec.NodeName {
			return n.String()
		}
	}
	t.Fatal("there is no other worker")
	return ""
}

// replaceAgent ends the agent of a node as the kubelet of a node that shuts down
// does, and waits for the next one.
func replaceAgent(ctx context.Context, node string) error {
	pods := suite.Client.CoreV1().Pods(metav1.NamespaceSystem)
	list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: "k8s-app=konnectivity-agent", FieldSelector: "spec.nodeName=" + node})
	if err != nil || len(list.Items) != 1 {
		return errors.Join(err, fmt.Errorf("node %s has %d agents", node, len(list.Items)))
	}
	old := list.Items[0]
	if err := pods.Delete(ctx, old.Name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	return harness.Wait(ctx, 2*time.Minute, "a new agent on "+node, func(ctx context.Context) error {
		list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: "k8s-app=konnectivity-agent", FieldSelector: "spec.nodeName=" + node})
		if err != nil {
			return err
		}
		for _, p := range list.Items {
			if p.UID == old.UID {
				return fmt.Errorf("%s is still there", p.Name)
			}
			for _, c := range p.Status.Conditions {
				if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
					return nil
				}
			}
		}
		return fmt.Errorf("none of %d is ready", len(list.Items))
	})
}
