// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/v1beta1"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
	"github.com/fairlead-dev/fairlead/pkg/operator"
)

// poolLooks are pools of a valid Bundle, and a reconciler that the test calls.
type poolLooks struct {
	*env
	pools dynamic.ResourceInterface
	r     *operator.PoolReconciler
}

func startPools(t *testing.T, names ...string) *poolLooks {
	e := start(t)
	e.definitions()
	if _, err := e.bundles.Create(t.Context(), object("Bundle", "", "default", map[string]any{}), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	l := &poolLooks{env: e, pools: e.kind("tunnelpools").Namespace("kube-system"), r: &operator.PoolReconciler{Client: newRacing(t, e.cfg), Config: e.cfg}}
	for _, name := range names {
		if _, err := l.pools.Create(t.Context(), object("TunnelPool", "kube-system", name, map[string]any{"replicas": int64(1)}), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	l.look()
	return l
}

func (l *poolLooks) look() {
	l.Helper()
	if _, err := l.r.Reconcile(l.Context(), ctrl.Request{}); err != nil {
		l.Fatal(err)
	}
}

// agents of a pool; nil if there are none.
func (l *poolLooks) agents(pool string) *appsv1.Deployment {
	l.Helper()
	d, err := l.client.AppsV1().Deployments("kube-system").Get(l.Context(), "konnectivity-agent-pool-"+pool, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		l.Fatal(err)
	}
	return d
}

func (l *poolLooks) replicas(pool string, n int) {
	l.Helper()
	patch := fmt.Appendf(nil, `{"spec": {"replicas": %d}}`, n)
	if _, err := l.pools.Patch(l.Context(), pool, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		l.Fatal(err)
	}
}

// has checks how many agents a pool's Deployment wants, and the verdict on the pool.
func (l *poolLooks) has(pool string, n int32, reason string) metav1.Condition {
	l.Helper()
	d := l.agents(pool)
	if d == nil || *d.Spec.Replicas != n {
		l.Errorf("pool %s does not have %d agents: %+v", pool, n, d)
	}
	return l.condition(l.pools, pool, v1beta1.PoolAccepted, reason)
}

func (l *poolLooks) patchAgents(pool, patch string) {
	l.Helper()
	if _, err := l.client.AppsV1().Deployments("kube-system").Patch(l.Context(), "konnectivity-agent-pool-"+pool, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		l.Fatal(err)
	}
}

// TestPoolsApart: what blocks one pool is said of that pool alone, and keeps no other from being applied or removed. The
// same holds for drift while the operator only observes.
func TestPoolsApart(t *testing.T) {
	testutil.Full(t, "a variant of TestInstalled")
	daemontest.Beside(t)
	l := startPools(t, "a", "b", "gone")
	deployments := l.client.AppsV1().Deployments("kube-system")
	// As the controller of HorizontalPodAutoscalers does.
	scale, err := deployments.GetScale(t.Context(), "konnectivity-agent-pool-a", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	scale.Spec.Replicas = 9
	if _, err := deployments.UpdateScale(t.Context(), "konnectivity-agent-pool-a", scale, metav1.UpdateOptions{FieldManager: "kube-controller-manager"}); err != nil {
		t.Fatal(err)
	}
	l.replicas("b", 4)
	if err := l.pools.Delete(t.Context(), "gone", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	l.look()
	if c := l.has("a", 9, v1beta1.ReasonBlocked); !strings.Contains(c.Message, "kube-controller-manager") {
		t.Errorf("the condition does not say what blocks the pool: %s", c.Message)
	}
	l.has("b", 4, v1beta1.ReasonAccepted)
	if d := l.agents("gone"); d != nil {
		t.Errorf("the agents of a pool that was deleted are there: %+v", d)
	}

	l.patchAgents("b", `{"metadata": {"finalizers": ["example.com/wait"]}}`)
	if err := deployments.Delete(t.Context(), "konnectivity-agent-pool-b", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	l.replicas("a", 9)
	l.look()
	l.has("a", 9, v1beta1.ReasonAccepted)
	if c := l.has("b", 4, v1beta1.ReasonBlocked); !strings.Contains(c.Message, "example.com/wait") {
		t.Errorf("the condition does not say what holds the agents: %s", c.Message)
	}

	l.patchAgents("b", `{"metadata": {"finalizers": null}}`)
	l.look()
	l.has("b", 4, v1beta1.ReasonAccepted)
	l.patch(`{"spec": {"managementPolicy": "Observe"}}`)
	l.replicas("a", 3)
	l.look()
	l.has("a", 9, v1beta1.ReasonDrift)
	l.has("b", 4, v1beta1.ReasonAccepted)
}

// TestOrphanedPool: the agents of a pool that is deleted with --cascade=orphan stay, before and after the garbage
// collector has taken the reference to the pool. A pool of the same name has them again.
func TestOrphanedPool(t *testing.T) {
	testutil.Full(t, "a variant of TestPoolsApart")
	daemontest.Beside(t)
	l := startPools(t, "edge", "other")
	orphan := metav1.DeletePropagationOrphan
	if err := l.pools.Delete(t.Context(), "edge", metav1.DeleteOptions{PropagationPolicy: &orphan}); err != nil {
		t.Fatal(err)
	}
	before := l.agents("edge")
	stay := func(n int) {
		t.Helper()
		l.replicas("other", n) // has the operator write
		l.look()
		l.has("other", int32(n), v1beta1.ReasonAccepted)
		if d := l.agents("edge"); d == nil || d.UID != before.UID || d.DeletionTimestamp != nil {
			t.Fatalf("the agents were not left: %+v", d)
		}
	}
	stay(2)
	l.patchAgents("edge", `{"metadata": {"ownerReferences": null}}`) // as the garbage collector does, which does not run here
	stay(3)
	if _, err := l.pools.Patch(t.Context(), "edge", types.MergePatchType, []byte(`{"metadata": {"finalizers": null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.pools.Get(t.Context(), "edge", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Fatalf("the pool is there: %v", err)
	}
	stay(4)
	if _, err := l.pools.Create(t.Context(), object("TunnelPool", "kube-system", "edge", map[string]any{"replicas": int64(5)}), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	l.look()
	l.has("edge", 5, v1beta1.ReasonAccepted)
	if err := l.pools.Delete(t.Context(), "edge", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	l.look()
	if d := l.agents("edge"); d != nil {
		t.Errorf("the agents of a pool that was deleted are there: %+v", d)
	}
}

// TestStrayPool: a pool that is not valid keeps the workloads that are its own, of either kind, and not those of a pool of the
// same name in another namespace.
func TestStrayPool(t *testing.T) {
	testutil.Full(t, "a variant of TestPoolsApart")
	daemontest.Beside(t)
	l := startPools(t, "a")
	stray := l.kind("tunnelpools").Namespace("default")
	if _, err := stray.Create(t.Context(), object("TunnelPool", "default", "a", map[string]any{}), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	patch := func(text string) {
		t.Helper()
		if _, err := l.pools.Patch(t.Context(), "a", types.MergePatchType, []byte(text), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		l.look()
	}
	daemonSet := func() error {
		_, err := l.client.AppsV1().DaemonSets("kube-system").Get(t.Context(), "konnectivity-agent-pool-a", metav1.GetOptions{})
		return err
	}
	patch(`{"spec": {"form": "DaemonSet", "replicas": null}}`)
	l.condition(stray, "a", v1beta1.PoolAccepted, v1beta1.ReasonInvalid)
	l.condition(l.pools, "a", v1beta1.PoolAccepted, v1beta1.ReasonAccepted)
	if d, err := l.agents("a"), daemonSet(); d != nil || err != nil {
		t.Errorf("beside the DaemonSet (%v) the Deployment is there: %+v", err, d)
	}

	patch(`{"spec": {"form": "Deployment", "image": "no image"}}`)
	l.condition(l.pools, "a", v1beta1.PoolAccepted, v1beta1.ReasonInvalid)
	if err := daemonSet(); err != nil {
		t.Errorf("a pool that is not valid has lost its agents: %v", err)
	}
}
