// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/v1beta1"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
	"github.com/fairlead-dev/fairlead/pkg/install"
	"github.com/fairlead-dev/fairlead/pkg/operator"
)

// waiter is a connection that tells when the lock of `fairlead install` is asked for.
func (e *env) waiter() (*rest.Config, <-chan struct{}) {
	asked, once := make(chan struct{}), sync.Once{}
	cfg := rest.CopyConfig(e.cfg)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			if strings.HasSuffix(request.URL.Path, "/leases/"+install.LockName) {
				once.Do(func() { close(asked) })
			}
			return next.RoundTrip(request)
		})
	})
	return cfg, asked
}

// during has another run hold the lock, and does something while a look waits for it. The look ends without an error, and
// another one follows soon.
func (e *env) during(reconciler func(*rest.Config) reconcile.Reconciler, something func()) {
	e.Helper()
	cfg, asked := e.waiter()
	r := reconciler(cfg)
	unlock := e.lock()
	type ended struct {
		result ctrl.Result
		err    error
	}
	done := make(chan ended, 1)
	go func() {
		result, err := r.Reconcile(e.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: "default"}})
		done <- ended{result, err}
	}()
	select {
	case <-asked:
	case end := <-done:
		e.Fatalf("the look has not waited: %+v", end)
	}
	something()
	unlock()
	if end := <-done; end.err != nil || end.result.RequeueAfter <= 0 || end.result.RequeueAfter > time.Second {
		e.Errorf("after a change: %+v, want another look within a second", end)
	}
}

// TestPoolOrphanedMeanwhile: agents whose pool is deleted with --cascade=orphan, while the operator waits for the lock, do not get
// the reference to it back: the garbage collector would delete them.
func TestPoolOrphanedMeanwhile(t *testing.T) {
	testutil.Full(t, "a race of TestPoolsApart")
	daemontest.Beside(t)
	l := startPools(t, "edge", "other")
	l.replicas("edge", 5)
	l.during(func(cfg *rest.Config) reconcile.Reconciler {
		return &operator.PoolReconciler{Client: newRacing(t, l.cfg), Config: cfg}
	}, func() {
		orphan := metav1.DeletePropagationOrphan
		if err := l.pools.Delete(t.Context(), "edge", metav1.DeleteOptions{PropagationPolicy: &orphan}); err != nil {
			t.Fatal(err)
		}
		// As the garbage collector does, which does not run here.
		l.patchAgents("edge", `{"metadata": {"ownerReferences": null}}`)
		if _, err := l.pools.Patch(t.Context(), "edge", types.MergePatchType, []byte(`{"metadata": {"finalizers": null}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	})
	l.replicas("other", 4)
	l.look()
	l.has("other", 4, v1beta1.ReasonAccepted)
	if d := l.agents("edge"); d == nil || len(d.OwnerReferences) > 0 || *d.Spec.Replicas != 1 {
		t.Errorf("the agents were not left: %+v", d)
	}
}

// TestObserveMeanwhile: a Bundle that the operator is to observe, or another spec of it, while it waits for the lock, stops the run. So
// does a pool whose Bundle changes.
func TestObserveMeanwhile(t *testing.T) {
	testutil.Full(t, "a race of TestBundle")
	daemontest.Beside(t)
	l := startPools(t, "edge")
	bundles := func(cfg *rest.Config) reconcile.Reconciler {
		return &operator.BundleReconciler{Client: newRacing(t, l.cfg), Config: cfg}
	}
	l.during(bundles, func() { l.patch(`{"spec": {"managementPolicy": "Observe"}}`) })
	if _, err := l.scheduler(); err == nil {
		t.Error("the bundle was applied")
	}
	l.patch(`{"spec": {"managementPolicy": "Enforce"}}`)
	l.replicas("edge", 5)
	l.during(func(cfg *rest.Config) reconcile.Reconciler {
		return &operator.PoolReconciler{Client: newRacing(t, l.cfg), Config: cfg}
	}, func() { l.patch(`{"spec": {"managementPolicy": "Observe"}}`) })
	l.look()
	l.has("edge", 1, v1beta1.ReasonDrift)
}

// TestKeptMeanwhile: a Bundle that is being deleted, and whose objects are to stay after all, while the operator waits for the lock,
// keeps them.
func TestKeptMeanwhile(t *testing.T) {
	testutil.Full(t, "a race of TestDelete")
	daemontest.Beside(t)
	l := startPools(t, "edge")
	r := &operator.BundleReconciler{Client: newRacing(t, l.cfg), Config: l.cfg}
	l.patch(`{"spec": {"deletionPolicy": "Delete"}}`)
	if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: "default"}}); err != nil {
		t.Fatal(err)
	}
	l.reconciled(v1beta1.ReasonAsWanted)
	l.delete()
	l.during(func(cfg *rest.Config) reconcile.Reconciler {
		return &operator.BundleReconciler{Client: newRacing(t, l.cfg), Config: cfg}
	}, func() { l.patch(`{"spec": {"deletionPolicy": "Orphan"}}`) })
	if _, err := l.scheduler(); err != nil {
		t.Errorf("the scheduler was deleted: %v", err)
	}
	if l.agents("edge") == nil {
		t.Error("the agents of the pool were deleted")
	}
}

// TestCertificatesMeanwhile: certificates that `fairlead install` makes while the operator waits for the lock stay.
func TestCertificatesMeanwhile(t *testing.T) {
	testutil.Full(t, "a race of TestBundle")
	daemontest.Beside(t)
	e := start(t)
	e.definitions()
	spec := map[string]any{"gateway": map[string]any{"enabled": true}}
	wanted := e.loaded(spec)
	if _, err := e.bundles.Create(t.Context(), object("Bundle", "", "default", spec), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	var before map[string]*corev1.Secret
	cfg := rest.CopyConfig(e.cfg)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			if strings.HasSuffix(request.URL.Path, "/leases/"+install.LockName) {
				once.Do(func() {
					objects, err := install.Objects(t.Context(), e.cfg, wanted, time.Now())
					if err == nil {
						_, err = install.Apply(t.Context(), e.cfg, objects, install.Options{})
					}
					if err != nil {
						t.Error(err)
					}
					before = e.secrets()
				})
			}
			return next.RoundTrip(request)
		})
	})
	r := &operator.BundleReconciler{Client: newRacing(t, e.cfg), Config: cfg}
	if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: "default"}}); err != nil {
		t.Fatal(err)
	}
	e.reconciled(v1beta1.ReasonAsWanted)
	for name, s := range e.secrets() {
		if b := before[name]; b == nil || !cmp.Equal(b.Data, s.Data) {
			t.Errorf("Secret %s was replaced", name)
		}
	}
	if len(before) < 2 {
		t.Errorf("%d Secrets, want those of the gateway", len(before))
	}
}

func (e *env) secrets() map[string]*corev1.Secret {
	e.Helper()
	list, err := e.client.CoreV1().Secrets("kube-system").List(e.Context(), metav1.ListOptions{})
	if err != nil {
		e.Fatal(err)
	}
	out := map[string]*corev1.Secret{}
	for i := range list.Items {
		out[list.Items[i].Name] = &list.Items[i]
	}
	return out
}
