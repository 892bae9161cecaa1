// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/v1beta1"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
	"github.com/fairlead-dev/fairlead/pkg/install"
	"github.com/fairlead-dev/fairlead/pkg/operator"
)

// deleting is a Bundle whose objects go with it.
var deleting = map[string]any{"deletionPolicy": "Delete"}

// create makes the Bundle, and waits until it is applied.
func (e *env) create(spec map[string]any) {
	e.Helper()
	testutil.Eventually(e.T, bound, func() error { // until the definitions are there
		_, err := e.bundles.Create(e.Context(), object("Bundle", "", "default", spec), metav1.CreateOptions{})
		return err
	})
	e.reconciled(v1beta1.ReasonAsWanted)
}

func (e *env) delete() {
	e.Helper()
	if err := e.bundles.Delete(e.Context(), "default", metav1.DeleteOptions{}); err != nil {
		e.Fatal(err)
	}
}

// gone waits until there is no Bundle.
func (e *env) gone() {
	e.Helper()
	testutil.Eventually(e.T, bound, func() error {
		b, err := e.bundle()
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("the Bundle is there: %+v, %w", b, err)
	})
}

// finalizers waits until the Bundle has the finalizer, or has not.
func (e *env) finalizer(wanted bool) {
	e.Helper()
	testutil.Eventually(e.T, bound, func() error {
		b, err := e.bundle()
		if err != nil {
			return err
		}
		if slices.Contains(b.Finalizers, "fairlead.dev/uninstall") != wanted {
			return fmt.Errorf("finalizers %q", b.Finalizers)
		}
		return nil
	})
}

// nothingLeft: no workload, and none of the objects that the parties list.
func (e *env) nothingLeft() {
	e.Helper()
	if left := e.versions(); len(left) != 1 || left["fairlead-operator"] == "" {
		e.Errorf("workloads are left: %v", left)
	}
	for _, party := range []install.Party{install.Command, install.Pools} {
		result, err := install.Uninstall(e.Context(), e.cfg, install.UninstallOptions{Party: party, DryRun: true, KeepDefinitions: true})
		if err != nil || len(result.Objects) > 0 {
			e.Errorf("left: %+v, %v", result.Objects, err)
		}
		if _, err := e.client.CoreV1().ConfigMaps("kube-system").Get(e.Context(), party.Inventory(), metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			e.Errorf("inventory %s: %v", party.Inventory(), err)
		}
	}
}

// hold gives the scheduler a finalizer of another owner, or takes it: its deletion waits for it.
func (e *env) hold(finalizers string) {
	e.Helper()
	patch := []byte(`{"metadata": {"finalizers": ` + finalizers + `}}`)
	if _, err := e.client.AppsV1().Deployments("kube-system").Patch(e.Context(), "my-scheduler", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		e.Fatal(err)
	}
}

// TestOrphan: by default a Bundle has no finalizer and leaves all objects. One whose policy is
// changed back, or that the operator is to observe, loses the finalizer, also during its deletion.
func TestOrphan(t *testing.T) {
	testutil.Full(t, "a variant of TestDelete")
	daemontest.Beside(t)
	e, refused := installed(t)
	e.create(map[string]any{})
	e.finalizer(false)
	e.patch(`{"spec": {"deletionPolicy": "Delete"}}`)
	e.finalizer(true)
	e.patch(`{"spec": {"managementPolicy": "Observe"}}`)
	e.finalizer(false)
	e.patch(`{"spec": {"managementPolicy": "Enforce"}}`)
	e.finalizer(true)
	e.patch(`{"spec": {"deletionPolicy": null}}`)
	e.finalizer(false)
	before := e.versions()
	e.delete()
	e.gone()

	e.create(deleting)
	e.finalizer(true)
	pod := e.tunnelUser()
	e.delete()
	c := e.condition(e.bundles, "default", v1beta1.BundleReconciled, v1beta1.ReasonBlocked)
	for _, want := range []string{pod, "controlplane uninstall", "deletionPolicy: Orphan"} {
		if !strings.Contains(c.Message, want) {
			t.Errorf("the condition lacks %q: %s", want, c.Message)
		}
	}
	e.condition(e.bundles, "default", v1beta1.BundleStalled, v1beta1.ReasonBlocked)
	e.event("Bundle", "Blocked", pod)
	e.patch(`{"spec": {"deletionPolicy": "Orphan"}}`)
	e.gone()
	for name, version := range before {
		if now := e.versions()[name]; name != "fairlead-operator" && now != version {
			t.Errorf("%s was written or deleted: version %s, before %s", name, now, version)
		}
	}
	if list := refused.take(); len(list) > 0 {
		t.Errorf("the API server has refused\n%s", strings.Join(list, "\n"))
	}
}

// tunnelUser makes a Pod of a kube-apiserver that uses the tunnel, and returns its name.
func (e *env) tunnelUser() string {
	e.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	if _, err := e.client.CoreV1().ServiceAccounts("kube-system").Create(e.Context(), account, metav1.CreateOptions{}); err != nil {
		e.Fatal(err)
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "kube-apiserver-node-1", Labels: map[string]string{"component": "kube-apiserver"}},
		Spec: corev1.PodSpec{
			NodeName:   "node-1",
			Containers: []corev1.Container{{Name: "c", Image: "x", Command: []string{"kube-apiserver", "--egress-selector-config-file=/x"}}},
		},
	}
	if _, err := e.client.CoreV1().Pods("kube-system").Create(e.Context(), pod, metav1.CreateOptions{}); err != nil {
		e.Fatal(err)
	}
	return pod.Name
}

// TestDelete: with the rights that are rendered, and no others, the operator deletes all that
// the Bundle and the TunnelPools brought, the Bundle's agents last of the workloads, and the Bundle
// goes. It waits for another run that holds the lock, and another operator goes on where one has
// ended: it waits for the scheduler, which still ends, before it deletes agents.
// It observes CRD-61 of docs/requirements.md.
func TestDelete(t *testing.T) {
	daemontest.Beside(t)
	e, refused := installed(t)
	e.create(map[string]any{
		"deletionPolicy": "Delete", "gateway": map[string]any{"enabled": true}, "konnectivity": map[string]any{"leaseCounting": true},
		"scheduler": map[string]any{"assignments": []any{map[string]any{
			"schedulerName": "my-scheduler", "podSelector": map[string]any{"matchLabels": map[string]any{"batch": "true"}},
		}}},
	})
	e.finalizer(true)
	pools := e.kind("tunnelpools").Namespace("kube-system")
	if _, err := pools.Create(t.Context(), object("TunnelPool", "kube-system", "more", map[string]any{}), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, bound, func() error {
		_, err := e.client.AppsV1().Deployments("kube-system").Get(t.Context(), "konnectivity-agent-pool-more", metav1.GetOptions{})
		return err
	})
	order := e.deletions()
	before := e.versions()
	e.hold(`["example.com/other"]`)
	release := e.lock()
	e.delete()
	c := e.condition(e.bundles, "default", v1beta1.BundleReconciled, v1beta1.ReasonUninstalling)
	e.condition(e.bundles, "default", v1beta1.BundleProgressing, v1beta1.ReasonUninstalling)
	if len(e.versions()) != len(before) {
		t.Errorf("something was deleted while another run holds the lock: %v; the condition says %q", e.versions(), c.Message)
	}
	release()
	testutil.Eventually(t, bound, func() error {
		d, err := e.scheduler()
		if err == nil && d.DeletionTimestamp == nil {
			err = fmt.Errorf("the scheduler is not being deleted")
		}
		return err
	})
	e.stop()
	runWith(e, e.operator)
	testutil.Eventually(t, bound, func() error { // until the other operator looks, and finds the scheduler that still ends
		lease, err := e.client.CoordinationV1().Leases("kube-system").Get(t.Context(), install.LockName, metav1.GetOptions{})
		if err == nil && ptr.Deref(lease.Spec.HolderIdentity, "") == "" {
			err = fmt.Errorf("the lock is free")
		}
		return err
	})
	e.event("Bundle", "Changed", "konnectivity-agent-pool-more deleted")
	time.Sleep(time.Second) // in which nothing deletes the agents
	if _, err := e.client.AppsV1().DaemonSets("kube-system").Get(t.Context(), "konnectivity-agent", metav1.GetOptions{}); err != nil {
		t.Errorf("the agents are gone before the scheduler: %v", err)
	}
	e.hold("null")
	e.gone()
	e.nothingLeft()
	names := order(len(before) - 1)
	if len(names) != len(before)-1 || names[len(names)-1] != "konnectivity-agent" {
		t.Errorf("deleted in the order %q, want konnectivity-agent last of %d", names, len(before)-1)
	}
	e.event("Bundle", "Uninstalled", "all objects")
	e.condition(pools, "more", v1beta1.PoolAccepted, v1beta1.ReasonNoBundle)
	// It may not ask whether the API server still applies the policies, and waits a fixed time instead.
	if list := refused.take(); !slices.Equal(list, []string{"GET /api/v1/namespaces"}) {
		t.Errorf("the API server has refused\n%s", strings.Join(list, "\n"))
	}
}

// lock takes the lock of `fairlead install`, until the returned function is called.
func (e *env) lock() func() {
	e.Helper()
	leases := e.client.CoordinationV1().Leases("kube-system")
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: install.LockName}}
	if _, err := leases.Create(e.Context(), lease, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		e.Fatal(err)
	}
	set := func(holder string) {
		testutil.Eventually(e.T, bound, func() error {
			lease, err := leases.Get(e.Context(), install.LockName, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if now := ptr.Deref(lease.Spec.HolderIdentity, ""); now != "" && now != "another run" {
				return fmt.Errorf("%s holds the lock", now)
			}
			lease.Spec = coordinationv1.LeaseSpec{
				HolderIdentity: &holder, LeaseDurationSeconds: ptr.To(int32(300)), RenewTime: ptr.To(metav1.NowMicro()), AcquireTime: ptr.To(metav1.NowMicro()),
			}
			_, err = leases.Update(e.Context(), lease, metav1.UpdateOptions{})
			return err
		})
	}
	set("another run")
	return func() { set("") }
}

// deletions returns a function that waits for n deletions of workloads since, and returns the names of all, in order.
func (e *env) deletions() func(n int) []string {
	e.Helper()
	deployments, err := e.client.AppsV1().Deployments("kube-system").Watch(e.Context(), metav1.ListOptions{})
	if err != nil {
		e.Fatal(err)
	}
	daemonsets, err := e.client.AppsV1().DaemonSets("kube-system").Watch(e.Context(), metav1.ListOptions{})
	if err != nil {
		e.Fatal(err)
	}
	return func(n int) []string {
		defer deployments.Stop()
		defer daemonsets.Stop()
		var deleted []watch.Event
		for limit, open := bound, true; open; {
			if len(deleted) >= n {
				limit = time.Second // for what should not be deleted
			}
			var ev watch.Event
			select {
			case ev, open = <-deployments.ResultChan():
			case ev, open = <-daemonsets.ResultChan():
			case <-time.After(limit):
				open = false
			}
			if ev.Type == watch.Deleted {
				deleted = append(deleted, ev)
			}
		}
		version := func(ev watch.Event) (n int64) {
			_, _ = fmt.Sscan(ev.Object.(metav1.Object).GetResourceVersion(), &n)
			return n
		}
		slices.SortFunc(deleted, func(a, b watch.Event) int { return int(version(a) - version(b)) })
		var names []string
		for _, ev := range deleted {
			names = append(names, ev.Object.(metav1.Object).GetName())
		}
		return names
	}
}

// TestFailingDeletion: a deletion that fails again and again writes the status and tells of it once, and
// says what fails. When nothing fails any more, it goes on.
func TestFailingDeletion(t *testing.T) {
	testutil.Full(t, "a variant of TestDelete")
	daemontest.Beside(t)
	e := start(t)
	e.definitions()
	var refuse atomic.Bool
	cfg := rest.CopyConfig(e.cfg)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			// Not the lock: whether a look gets to delete it depends on whether it was released in time, and so does the message.
			if refuse.Load() && request.Method == http.MethodDelete && !strings.Contains(request.URL.Path, "/leases/") {
				return nil, errors.New("the network is down")
			}
			return next.RoundTrip(request)
		})
	})
	recorder := events.NewFakeRecorder(1000)
	r := &operator.BundleReconciler{Client: newRacing(t, e.cfg), Config: cfg, Events: recorder}
	look := func() error {
		t.Helper()
		_, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: "default"}})
		return err
	}
	if _, err := e.bundles.Create(t.Context(), object("Bundle", "", "default", deleting), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := look(); err != nil {
		t.Fatal(err)
	}
	e.delete()
	told(recorder)
	refuse.Store(true)
	version, warned, was := "", 0, v1beta1.BundleStatus{}
	for i := range 5 {
		if err := look(); err == nil || !strings.Contains(err.Error(), "the network is down") {
			t.Fatalf("look %d: %v", i, err)
		}
		b := e.reconciled(v1beta1.ReasonFailed)
		if i > 0 && b.ResourceVersion != version {
			t.Errorf("look %d has written the Bundle, although it fails as the one before: %s", i, cmp.Diff(was, b.Status))
		}
		version, was = b.ResourceVersion, b.Status
		for _, text := range told(recorder) {
			if strings.HasPrefix(text, "Warning") {
				warned++
				t.Log(text)
			}
		}
	}
	if warned > 2 { // that it begins, and that it fails
		t.Errorf("%d warnings of 5 looks that fail alike", warned)
	}
	refuse.Store(false)
	testutil.Eventually(t, bound, func() error {
		if err := look(); err != nil {
			return err
		}
		if _, err := e.bundle(); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the Bundle is there: %w", err)
		}
		return nil
	})
}
