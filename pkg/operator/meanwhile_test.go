// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/v1beta1"
	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	operatorbundle "github.com/fairlead-dev/fairlead/pkg/bundle/operator"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
	"github.com/fairlead-dev/fairlead/pkg/install"
	"github.com/fairlead-dev/fairlead/pkg/operator"
)

// racing is a client before whose next write of a status another client does something.
type racing struct {
	client.Client
	before func()
}

func newRacing(t *testing.T, cfg *rest.Config) *racing {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1beta1.AddToScheme, appsv1.AddToScheme, coordinationv1.AddToScheme, corev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	inner, err := client.NewWithWatch(cfg, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	r := &racing{}
	r.Client = interceptor.NewClient(inner, interceptor.Funcs{
		SubResourceUpdate: func(ctx context.Context, c client.Client, name string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			if before := r.before; before != nil {
				r.before = nil
				before()
			}
			return c.SubResource(name).Update(ctx, o, opts...)
		},
	})
	return r
}

// definitions installs the CustomResourceDefinitions.
func (e *env) definitions() {
	e.Helper()
	list, err := operatorbundle.Definitions(operatorbundle.Options{})
	if err != nil {
		e.Fatal(err)
	}
	var objects []component.Object
	for _, d := range list {
		objects = append(objects, d)
	}
	if _, err := install.Apply(e.Context(), e.cfg, objects, install.Options{Party: install.Operator}); err != nil {
		e.Fatal(err)
	}
	for _, d := range list { // an established definition is served a moment later
		testutil.Eventually(e.T, bound, func() error {
			_, err := e.kind(d.Spec.Names.Plural).List(e.Context(), metav1.ListOptions{})
			return err
		})
	}
}

// told takes the events that were recorded.
func told(r *events.FakeRecorder) (list []string) {
	for {
		select {
		case text := <-r.Events:
			list = append(list, text)
		default:
			return list
		}
	}
}

// TestMeanwhile: another client that changes or deletes an object between the operator's read
// and its write of the status leads to another look within a second, and to no error, which
// controller-runtime would log and count, and no event. The next look writes the status.
func TestMeanwhile(t *testing.T) {
	testutil.Full(t, "a race of TestInstalled")
	daemontest.Beside(t)
	e := start(t)
	e.definitions()
	system := e.kind("tunnelpools").Namespace("kube-system")
	recorder := events.NewFakeRecorder(1000)
	c := newRacing(t, e.cfg)
	for _, tc := range []struct {
		kind, namespace string
		objects         dynamic.ResourceInterface
		spec            map[string]any
		reconciler      reconcile.Reconciler
	}{
		{"SchedulerProfile", "", e.kind("schedulerprofiles"), map[string]any{"schedulerName": "default", "strategy": "Standard"}, &operator.ProfileReconciler{Client: c, Events: recorder}},
		{"TunnelPool", "kube-system", system, map[string]any{}, &operator.PoolReconciler{Client: c, Config: e.cfg, Events: recorder}},
		{"Bundle", "", e.bundles, map[string]any{"scheduler": map[string]any{"replicas": int64(0)}}, &operator.BundleReconciler{Client: c, Config: e.cfg, Events: recorder}},
	} {
		t.Run(tc.kind, func(t *testing.T) {
			request := ctrl.Request{NamespacedName: types.NamespacedName{Name: "default"}}
			look := func() ctrl.Result {
				t.Helper()
				result, err := tc.reconciler.Reconcile(t.Context(), request)
				if err != nil {
					t.Errorf("an error for the log and the metrics: %v", err)
				}
				return result
			}
			if _, err := tc.objects.Create(t.Context(), object(tc.kind, tc.namespace, "default", tc.spec), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			c.before = func() {
				patch := []byte(`{"metadata": {"annotations": {"by": "another"}}}`)
				if _, err := tc.objects.Patch(t.Context(), "default", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			if result := look(); result.RequeueAfter <= 0 || result.RequeueAfter > time.Second {
				t.Errorf("after a conflict: %+v, want another look within a second", result)
			}
			if list := told(recorder); len(list) > 0 {
				t.Errorf("events of a look whose status was not written: %q", list)
			}
			if result := look(); result.RequeueAfter <= time.Second {
				t.Errorf("without a conflict: %+v", result)
			}
			u, err := tc.objects.Get(t.Context(), "default", metav1.GetOptions{})
			if err != nil || u.Object["status"] == nil {
				t.Errorf("no status after the second look: %v, %v", u, err)
			}
			told(recorder)

			// Gone, with another status to write.
			patch := []byte(`{"status": null}`)
			if _, err := tc.objects.Patch(t.Context(), "default", types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
				t.Fatal(err)
			}
			c.before = func() {
				if err := tc.objects.Delete(t.Context(), "default", metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			look()
			if c.before != nil {
				t.Error("the status was not written")
			}
			if list := told(recorder); len(list) > 0 {
				t.Errorf("events of an object that is gone: %q", list)
			}
		})
	}
}

// TestInventoryMeanwhile: the same for what pkg/install writes: no error, no condition Failed.
func TestInventoryMeanwhile(t *testing.T) {
	testutil.Full(t, "a race of TestBundle")
	daemontest.Beside(t)
	e := start(t)
	e.definitions()
	recorder := events.NewFakeRecorder(1000)
	raced := ""
	cfg := rest.CopyConfig(e.cfg)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			if name := request.URL.Path[strings.LastIndex(request.URL.Path, "/")+1:]; request.Method == http.MethodPut && name != raced && strings.HasPrefix(name, "fairlead-inventory") {
				raced = name
				patch := []byte(`{"metadata": {"annotations": {"by": "another"}}}`)
				if _, err := e.client.CoreV1().ConfigMaps("kube-system").Patch(request.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
					return nil, err
				}
			}
			return next.RoundTrip(request)
		})
	})
	if _, err := e.bundles.Create(t.Context(), object("Bundle", "", "default", map[string]any{}), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pools := e.kind("tunnelpools").Namespace("kube-system")
	if _, err := pools.Create(t.Context(), object("TunnelPool", "kube-system", "default", map[string]any{}), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c := newRacing(t, e.cfg)
	for name, r := range map[string]reconcile.Reconciler{
		install.Command.Inventory(): &operator.BundleReconciler{Client: c, Config: cfg, Events: recorder},
		install.Pools.Inventory():   &operator.PoolReconciler{Client: c, Config: cfg, Events: recorder},
	} {
		t.Run(name, func(t *testing.T) {
			for look := range 2 {
				result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: "default"}})
				if err != nil || (look == 0) != (result.RequeueAfter <= time.Second) {
					t.Errorf("look %d: %+v, %v", look, result, err)
				}
				for _, text := range told(recorder) {
					if strings.Contains(text, "Failed") {
						t.Errorf("look %d tells %q", look, text)
					}
				}
			}
			if raced != name {
				t.Errorf("no other client has changed the inventory: %q", raced)
			}
		})
	}
	for _, objects := range []dynamic.ResourceInterface{e.bundles, pools} {
		u, err := objects.Get(t.Context(), "default", metav1.GetOptions{})
		if err != nil || !strings.Contains(fmt.Sprint(u.Object["status"]), "reason:A") || strings.Contains(fmt.Sprint(u.Object["status"]), "reason:Failed") {
			t.Errorf("%v, %v", u, err)
		}
	}
}
