// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/v1beta1"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
)

// TestAutoscaler: the documentation's HorizontalPodAutoscaler, run by kube-controller-manager, finds the pool's agents and
// scales the pool, and the operator follows.
// It observes CRD-185, CRD-186 and CRD-187 of docs/requirements.md.
func TestAutoscaler(t *testing.T) {
	testutil.Full(t, "needs kube-controller-manager and kubectl")
	daemontest.Beside(t)
	page, err := os.ReadFile("../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	example := regexp.MustCompile("(?s)```yaml\n([^`]*kind: HorizontalPodAutoscaler\n.*?)```").FindSubmatch(page)
	if example == nil {
		t.Fatal("docs/api.md has no HorizontalPodAutoscaler")
	}
	file := filepath.Join(t.TempDir(), "pool.yaml")
	if err := os.WriteFile(file, example[1], 0o600); err != nil {
		t.Fatal(err)
	}
	l := startPools(t)
	testScaledOnce(l, file, example[1])
	l.kubectl("apply", "-f", file)
	l.look()
	l.has("edge", 2, v1beta1.ReasonAccepted)
	daemontest.Start(t, nil, daemontest.Components(t, "kube-controller-manager")["kube-controller-manager"],
		"--kubeconfig="+l.Kubeconfig, "--leader-elect=false", "--secure-port=0", "--use-service-account-credentials=false",
		"--controllers=horizontal-pod-autoscaler-controller", "--horizontal-pod-autoscaler-sync-period=1s")
	autoscalers := l.client.AutoscalingV2().HorizontalPodAutoscalers("kube-system")
	testutil.Eventually(t, bound, func() error { // it has found the agents by the selector; there are no metrics here
		hpa, err := autoscalers.Get(t.Context(), "edge", metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range hpa.Status.Conditions {
			if c.Type == autoscalingv2.ScalingActive && c.Reason == "FailedGetResourceMetric" {
				return nil
			}
		}
		return fmt.Errorf("conditions %+v", hpa.Status.Conditions)
	})
	for _, step := range []struct {
		limits string
		want   int64
	}{
		{`{"spec": {"minReplicas": 4}}`, 4},
		{`{"spec": {"minReplicas": 1, "maxReplicas": 3}}`, 3},
	} {
		if _, err := autoscalers.Patch(t.Context(), "edge", types.MergePatchType, []byte(step.limits), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		testutil.Eventually(t, bound, func() error {
			pool, err := l.pools.Get(t.Context(), "edge", metav1.GetOptions{})
			if err != nil {
				return err
			}
			if n, _, _ := unstructured.NestedInt64(pool.Object, "spec", "replicas"); n != step.want {
				return fmt.Errorf("the pool has %d replicas, want %d", n, step.want)
			}
			return nil
		})
		l.look()
		l.has("edge", int32(step.want), v1beta1.ReasonAccepted)
	}
}

// testScaledOnce: a manifest without replicas may be applied again, and leaves the number that was set once.
func testScaledOnce(l *poolLooks, file string, example []byte) {
	l.Helper()
	bare := regexp.MustCompile(`(?m)^  replicas: .*\n`).ReplaceAll(example, nil)
	if err := os.WriteFile(file+".bare", bare, 0o600); err != nil {
		l.Fatal(err)
	}
	l.kubectl("apply", "-f", file+".bare")
	l.kubectl("-n", "kube-system", "scale", "tunnelpool", "edge", "--replicas=4")
	for _, verb := range [][]string{{"apply"}, {"apply", "--server-side", "--force-conflicts"}} {
		l.kubectl(append(verb, "-f", file+".bare")...)
		pool, err := l.pools.Get(l.Context(), "edge", metav1.GetOptions{})
		if err != nil {
			l.Fatal(err)
		}
		if n, _, _ := unstructured.NestedInt64(pool.Object, "spec", "replicas"); n != 4 {
			l.Errorf("%v has set %d replicas, want 4", verb, n)
		}
	}
	l.kubectl("delete", "-f", file+".bare")
}
