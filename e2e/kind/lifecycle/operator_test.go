// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/e2e/harness"
)

// withOperator: the operator of "up --operator" takes ownership of what "up" has applied, and follows a Bundle of the
// old version, which it converts. The next "up" leaves that alone.
func withOperator(ctx context.Context, t *testing.T) {
	dyn, err := dynamic.NewForConfig(clientConfig(ctx, t))
	if err != nil {
		t.Fatal(err)
	}
	scheduler := func() (uid string, replicas int32) {
		t.Helper()
		d, err := client(ctx, t).AppsV1().Deployments(metav1.NamespaceSystem).Get(ctx, "my-scheduler", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return string(d.UID), *d.Spec.Replicas
	}
	before, _ := scheduler()
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "fairlead.dev/v1alpha1", "kind": "Bundle", "metadata": map[string]any{"name": "default"},
		"spec": map[string]any{"scheduler": map[string]any{"replicas": int64(3)}},
	}}
	if _, err := harness.Bundles(dyn, "v1alpha1").Create(ctx, object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := harness.WaitReconciled(ctx, dyn, 2*time.Minute); err != nil {
		t.Fatal(err)
	}
	for range 2 { // after "up" again, too
		if uid, replicas := scheduler(); uid != before || replicas != 3 {
			t.Errorf("the scheduler is Deployment %s with %d replicas, want %s with 3", uid, replicas, before)
		}
		try(ctx, t, suite.Home, 0, []string{"is running already"}, "up", "--name", life, "--operator", "--no-verify")
	}
	leaderDies(ctx, t, dyn, scheduler)
}

// leaderDies: when the leading replica of the operator is gone, the other one takes the Lease and applies the Bundle, just
// once. The other one goes on converting.
func leaderDies(ctx context.Context, t *testing.T, dyn dynamic.Interface, scheduler func() (string, int32)) {
	kube := client(ctx, t)
	const namespace, name = "fairlead-system", "fairlead-operator"
	leader := func(ctx context.Context) (string, error) {
		lease, err := kube.CoordinationV1().Leases(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		pod, _, _ := strings.Cut(ptr.Deref(lease.Spec.HolderIdentity, ""), "_")
		return pod, nil
	}
	generation := func() int64 {
		d, err := kube.AppsV1().Deployments(metav1.NamespaceSystem).Get(ctx, "my-scheduler", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return d.Generation
	}
	dead, err := leader(ctx)
	if err != nil || !strings.HasPrefix(dead, name) {
		t.Fatalf("the operator's leader is %q: %v", dead, err)
	}
	before := generation()
	if err := kube.CoreV1().Pods(namespace).Delete(ctx, dead, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}); err != nil {
		t.Fatal(err)
	}
	// The steps that follow are about the cluster of "up": two replicas.
	if _, err := harness.Bundles(dyn, "v1beta1").Patch(ctx, "default", types.MergePatchType, []byte(`{"spec":{"scheduler":{"replicas":2}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	killed, failed := time.Now(), time.Duration(0)
	if err := harness.Wait(ctx, 2*time.Minute, "another replica of the operator to apply the Bundle", func(ctx context.Context) error {
		if _, err := harness.Bundles(dyn, "v1alpha1").Get(ctx, "default", metav1.GetOptions{}); err != nil {
			failed = time.Since(killed)
		}
		now, err := leader(ctx)
		if _, replicas := scheduler(); err != nil || now == dead || replicas != 2 {
			return fmt.Errorf("%s leads, and there are %d replicas: %w", now, replicas, err)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if failed > 5*time.Second { // until kube-proxy knows that the dead replica is gone
		t.Errorf("a read of the old version failed %v after the replica was killed", failed)
	}
	time.Sleep(5 * time.Second) // a second leader would write, too
	if now := generation(); now != before+1 {
		t.Errorf("the scheduler's Deployment was written %d times", now-before)
	}
}
