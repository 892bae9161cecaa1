// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/v1beta1"
	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/scheduler"
)

// fakeCluster is a client without an API server, which counts writes.
type fakeCluster struct {
	client.Client
	writes int
}

func newFakeCluster(t *testing.T, objects ...client.Object) *fakeCluster {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1beta1.AddToScheme, appsv1.AddToScheme, coordinationv1.AddToScheme, corev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c := &fakeCluster{}
	c.Client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithStatusSubresource(&v1beta1.Bundle{}, &v1beta1.SchedulerProfile{}, &v1beta1.TunnelPool{}).
		WithInterceptorFuncs(interceptor.Funcs{
			SubResourceUpdate: func(ctx context.Context, inner client.Client, name string, o client.Object, opts ...client.SubResourceUpdateOption) error {
				c.writes++
				return inner.SubResource(name).Update(ctx, o, opts...)
			},
			Patch: func(ctx context.Context, inner client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
				c.writes++
				return inner.Patch(ctx, o, patch, opts...)
			},
		}).Build()
	return c
}

func bundleOf(change func(*v1beta1.Bundle)) *v1beta1.Bundle {
	b := &v1beta1.Bundle{ObjectMeta: metav1.ObjectMeta{Name: bundle.ObjectName, UID: "bundle", Generation: 3}}
	if change != nil {
		change(b)
	}
	return b
}

func profileOf(name, schedulerName string, strategy v1beta1.SchedulingStrategy, age time.Duration) *v1beta1.SchedulerProfile {
	return &v1beta1.SchedulerProfile{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Generation: 2, CreationTimestamp: metav1.NewTime(time.Now().Add(-age))},
		Spec:       v1beta1.SchedulerProfileSpec{SchedulerName: schedulerName, Strategy: strategy},
	}
}

// reconciled has a reconciler look twice. The second look must write nothing: it finds what the first one has written.
func (c *fakeCluster) reconciled(t *testing.T, r reconcile.Reconciler, next time.Duration) {
	t.Helper()
	for look := range 2 {
		before := c.writes
		result, err := r.Reconcile(t.Context(), ctrl.Request{})
		if err != nil || result.RequeueAfter != next {
			t.Errorf("look %d: %+v, %v, want the next one after %v", look, result, err, next)
		}
		if look > 0 && c.writes > before {
			t.Errorf("look %d has written although nothing differs", look)
		}
	}
}

func hasCondition(t *testing.T, all []metav1.Condition, generation int64, name, want, message string) {
	t.Helper()
	c := meta.FindStatusCondition(all, name)
	if c == nil || string(c.Status)+" "+c.Reason != want || c.ObservedGeneration != generation || !strings.Contains(c.Message, message) {
		t.Errorf("condition %s is %+v, want %s with %q", name, c, want, message)
	}
}

// TestProfilesReported checks the verdict on each profile: of two with one name the older one has it, and what is not valid says why.
func TestProfilesReported(t *testing.T) {
	raw := profileOf("raw", "raw", v1beta1.StrategyRaw, time.Minute)
	raw.Spec.Raw = &runtime.RawExtension{Raw: []byte(`{"plugins": {"score": {"enabled": [{"name": "NoSuchPlugin"}]}}}`)}
	c := newFakeCluster(t, bundleOf(nil), profileOf("young", "batch", v1beta1.StrategyBatch, time.Minute), profileOf("old", "batch", v1beta1.StrategyBatch, time.Hour),
		profileOf("taken", "my-scheduler", v1beta1.StrategyBatch, time.Hour), raw)
	recorder := events.NewFakeRecorder(100)
	c.reconciled(t, &ProfileReconciler{Client: c, Events: recorder}, usual.resyncNotReady)
	for name, want := range map[string][2]string{
		"old": {"True Accepted", "its name is free"}, "young": {"False NameConflict", "SchedulerProfile old"},
		"taken": {"False NameConflict", "Bundle default"}, "raw": {"False Invalid", "NoSuchPlugin"},
	} {
		p := &v1beta1.SchedulerProfile{}
		if err := c.Get(t.Context(), client.ObjectKey{Name: name}, p); err != nil {
			t.Fatal(err)
		}
		hasCondition(t, p.Status.Conditions, 2, v1beta1.ProfileAccepted, want[0], want[1])
		programmed := "False " + v1beta1.ReasonNotAccepted
		if name == "old" {
			programmed = "False " + v1beta1.ReasonNotApplied
		}
		hasCondition(t, p.Status.Conditions, 2, v1beta1.ProfileProgrammed, programmed, "")
	}
	if n := len(recorder.Events); n != 3 {
		t.Errorf("%d events, want one for each profile that is not accepted", n)
	}
}

// TestWithoutBundle checks that pools and profiles say that they wait for a Bundle, or for a valid one.
func TestWithoutBundle(t *testing.T) {
	invalid := func(b *v1beta1.Bundle) { b.Spec.Scheduler.Name = "No Name" }
	for name, tc := range map[string]struct {
		objects []client.Object
		reason  string
		message string
	}{
		"none":    {nil, v1beta1.ReasonNoBundle, "create it"},
		"invalid": {[]client.Object{bundleOf(invalid)}, v1beta1.ReasonInvalidBundle, "scheduler.name"},
		"deleting": {[]client.Object{bundleOf(func(b *v1beta1.Bundle) {
			b.DeletionTimestamp, b.Finalizers = &metav1.Time{Time: time.Now()}, []string{v1beta1.FinalizerUninstall}
		})}, v1beta1.ReasonNoBundle, "is being deleted"},
	} {
		t.Run(name, func(t *testing.T) {
			pool := &v1beta1.TunnelPool{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "edge", UID: "pool", Generation: 4}}
			c := newFakeCluster(t, append(tc.objects, pool, profileOf("p", "p", v1beta1.StrategyBatch, 0))...)
			c.reconciled(t, &PoolReconciler{Client: c}, usual.resyncReady)
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(pool), pool); err != nil {
				t.Fatal(err)
			}
			hasCondition(t, pool.Status.Conditions, 4, v1beta1.PoolAccepted, "False "+tc.reason, tc.message)
			if name == "deleting" {
				return // the scheduler runs with the profile until it is deleted
			}
			c.reconciled(t, &ProfileReconciler{Client: c}, usual.resyncNotReady)
			p := &v1beta1.SchedulerProfile{}
			if err := c.Get(t.Context(), client.ObjectKey{Name: "p"}, p); err != nil {
				t.Fatal(err)
			}
			hasCondition(t, p.Status.Conditions, 2, v1beta1.ProfileAccepted, "False "+tc.reason, tc.message)
		})
	}
}

// TestInvalidBundle checks that a Bundle that is not valid says why, is stalled, and gets the finalizer that its deletionPolicy wants.
func TestInvalidBundle(t *testing.T) {
	c := newFakeCluster(t, bundleOf(func(b *v1beta1.Bundle) {
		b.Spec.Scheduler.Name, b.Spec.DeletionPolicy = "No Name", v1beta1.DeletionDelete
	}))
	recorder := events.NewFakeRecorder(100)
	r := &BundleReconciler{Client: c, Events: recorder, Version: "v1.2.3"}
	get := func() *v1beta1.Bundle {
		t.Helper()
		b := &v1beta1.Bundle{}
		if err := c.Get(t.Context(), client.ObjectKey{Name: bundle.ObjectName}, b); err != nil {
			t.Fatal(err)
		}
		return b
	}
	c.reconciled(t, r, usual.resyncNotReady)
	b := get()
	hasCondition(t, b.Status.Conditions, b.Generation, v1beta1.BundleReconciled, "False InvalidBundle", "scheduler.name")
	hasCondition(t, b.Status.Conditions, b.Generation, v1beta1.BundleStalled, "True InvalidBundle", "")
	hasCondition(t, b.Status.Conditions, b.Generation, v1beta1.BundleReady, "False InvalidBundle", "")
	if b.Status.Version != "v1.2.3" || b.Status.ObservedGeneration != b.Generation || len(b.Finalizers) != 1 || b.Finalizers[0] != v1beta1.FinalizerUninstall {
		t.Errorf("version %q, observed generation %d, finalizers %q", b.Status.Version, b.Status.ObservedGeneration, b.Finalizers)
	}
	if n := len(recorder.Events); n != 1 {
		t.Errorf("%d events, want one", n)
	}

	// One that keeps its objects, and one that the operator only observes, is deleted at once.
	b.Spec.ManagementPolicy = v1beta1.ManagementObserve
	if err := c.Update(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Reconcile(t.Context(), ctrl.Request{}); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(b), b); !apierrors.IsNotFound(err) {
		t.Errorf("the Bundle is there: finalizers %q, %v", b.Finalizers, err)
	}
	if result, err := r.Reconcile(t.Context(), ctrl.Request{}); err != nil || result.RequeueAfter != 0 {
		t.Errorf("without a Bundle: %+v, %v", result, err)
	}
}

// TestHeldBySchedulerThatRuns checks that the scheduler keeps its configuration while it runs with a profile that is not valid any more, and only then.
func TestHeldBySchedulerThatRuns(t *testing.T) {
	b := bundleOf(nil)
	wanted, err := load(b)
	if err != nil {
		t.Fatal(err)
	}
	profile := *profileOf("x", "x", v1beta1.StrategyRaw, 0)
	broken := map[string]verdict{"x": {false, v1beta1.ReasonInvalid, "no such plugin"}}
	config := func(names ...string) client.Object {
		text := "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n"
		for _, n := range names {
			text += "- schedulerName: " + n + "\n"
		}
		objects, err := scheduler.Objects(wanted)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range objects {
			if cm, ok := o.(*corev1.ConfigMap); ok && cm.Name == scheduler.ConfigMapName(wanted) {
				for key := range cm.Data {
					cm.Data[key] = text
				}
				return cm
			}
		}
		t.Fatal("the scheduler has no ConfigMap")
		return nil
	}
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "my-scheduler"}}
	for name, tc := range map[string]struct {
		objects  []client.Object
		verdicts map[string]verdict
		held     bool
	}{
		"runs with it":    {[]client.Object{deployment, config("my-scheduler", "x")}, broken, true},
		"runs without it": {[]client.Object{deployment, config("my-scheduler")}, broken, false},
		"does not run":    {[]client.Object{config("my-scheduler", "x")}, broken, false},
		"valid":           {[]client.Object{deployment, config("my-scheduler", "x")}, map[string]verdict{"x": {true, v1beta1.ReasonAccepted, ""}}, false},
	} {
		why, names, err := held(t.Context(), newFakeCluster(t, tc.objects...), wanted, []v1beta1.SchedulerProfile{profile}, tc.verdicts)
		if err != nil || (why != "") != tc.held || tc.held && (!strings.Contains(why, "no such plugin") || len(names) != 2) {
			t.Errorf("%s: %q, %q, %v", name, why, names, err)
		}
	}
}
