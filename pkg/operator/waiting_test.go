// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/v1beta1"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
	"github.com/fairlead-dev/fairlead/pkg/operator"
)

// TestWaiting: while `fairlead install` runs, the operator waits. That is no failure: there is no error, no
// event, and no message that differs for each run.
func TestWaiting(t *testing.T) {
	testutil.Full(t, "waits for the time limit of a lock")
	daemontest.Beside(t)
	e := start(t)
	e.definitions()
	if _, err := e.bundles.Create(t.Context(), object("Bundle", "", "default", map[string]any{}), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pools := e.kind("tunnelpools").Namespace("kube-system")
	if _, err := pools.Create(t.Context(), object("TunnelPool", "kube-system", "edge", map[string]any{}), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	unlock := e.lock()
	recorder := events.NewFakeRecorder(1000)
	bundles := &operator.BundleReconciler{Client: newRacing(t, e.cfg), Config: e.cfg, Events: recorder}
	tunnelPools := &operator.PoolReconciler{Client: newRacing(t, e.cfg), Config: e.cfg, Events: recorder}
	reconcilers := []reconcile.Reconciler{
		bundles.WaitFor(5 * time.Second), tunnelPools.WaitFor(5 * time.Second),
	}
	look := func(next time.Duration) {
		t.Helper()
		var group sync.WaitGroup
		for _, r := range reconcilers {
			group.Go(func() {
				result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: "default"}})
				if err != nil || result.RequeueAfter <= 0 || result.RequeueAfter > next {
					t.Errorf("%T: %+v, %v", r, result, err)
				}
			})
		}
		group.Wait()
	}
	look(time.Minute)
	for _, c := range []metav1.Condition{
		e.condition(e.bundles, "default", v1beta1.BundleReconciled, v1beta1.ReasonWaiting),
		e.condition(pools, "edge", v1beta1.PoolAccepted, v1beta1.ReasonWaiting),
		e.condition(e.bundles, "default", v1beta1.BundleProgressing, v1beta1.ReasonWaiting),
	} {
		if !strings.Contains(c.Message, "fairlead-install") || strings.Contains(c.Message, "process") {
			t.Errorf("condition %s says %q", c.Type, c.Message)
		}
	}
	for _, text := range told(recorder) {
		if strings.Contains(text, "Reconciled") || strings.Contains(text, "Failed") || strings.Contains(text, v1beta1.ReasonWaiting) {
			t.Errorf("an event tells that the operator waits: %s", text)
		}
	}
	unlock()
	bundles.WaitFor(bound)
	tunnelPools.WaitFor(bound)
	look(time.Hour)
	e.reconciled(v1beta1.ReasonAsWanted)
	e.condition(pools, "edge", v1beta1.PoolAccepted, v1beta1.ReasonAccepted)
}
