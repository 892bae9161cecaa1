// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/v1beta1"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
	"github.com/fairlead-dev/fairlead/pkg/operator"
)

// TestPreflight: the operator refuses to apply what `fairlead install` refuses, with the same remedy, and a user
// may tell it to apply nevertheless.
func TestPreflight(t *testing.T) {
	testutil.Full(t, "a variant of TestBundle")
	daemontest.Beside(t)
	e := start(t)
	e.definitions()
	version := ""
	cfg := rest.CopyConfig(e.cfg)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			if request.URL.Path != "/version" || version == "" {
				return next.RoundTrip(request)
			}
			return &http.Response{
				StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Request: request,
				Body: io.NopCloser(strings.NewReader(`{"major": "1", "minor": "31", "gitVersion": "` + version + `"}`)),
			}, nil
		})
	})
	r := &operator.BundleReconciler{Client: newRacing(t, e.cfg), Config: cfg, Events: events.NewFakeRecorder(1000)}
	look := func(reason string) string {
		t.Helper()
		if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: "default"}}); err != nil {
			t.Fatal(err)
		}
		b, err := e.bundle()
		if err != nil {
			t.Fatal(err)
		}
		c := meta.FindStatusCondition(b.Status.Conditions, v1beta1.BundleReconciled)
		if c == nil || c.Reason != reason {
			t.Fatalf("%+v, want %s", c, reason)
		}
		return c.Message
	}
	blocked := func(id string, want ...string) {
		t.Helper()
		message := look(v1beta1.ReasonBlocked)
		for _, text := range append(want, "hint: ", "fairlead.dev/ignore-preflight-errors: "+id) {
			if !strings.Contains(message, text) {
				t.Errorf("the condition lacks %q: %s", text, message)
			}
		}
		if _, err := e.scheduler(); !apierrors.IsNotFound(err) {
			t.Errorf("%s: something was applied: %v", id, err)
		}
	}
	if _, err := e.bundles.Create(t.Context(), object("Bundle", "", "default", map[string]any{}), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	version = "v1.31.5"
	blocked("version", "v1.31.5", "upgrade the control plane first")
	version = "v1.36.3-gke.100"
	blocked("managed-control-plane", "konnectivity.enabled: false")
	version = ""
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "my-scheduler", Namespace: "kube-system"},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To("another-run"), LeaseDurationSeconds: ptr.To(int32(3600)), AcquireTime: ptr.To(metav1.NowMicro()), RenewTime: ptr.To(metav1.NowMicro()),
		},
	}
	if _, err := e.client.CoordinationV1().Leases("kube-system").Create(t.Context(), lease, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	blocked("lease", "another-run")
	version = "v1.31.5"
	r.IgnorePreflight = []string{"version", " lease "} // as in "version, lease "
	if message := look(v1beta1.ReasonAsWanted); message == "" {
		t.Error("the condition says nothing")
	}
	if err := e.client.AppsV1().Deployments("kube-system").Delete(t.Context(), "my-scheduler", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	r.IgnorePreflight = nil
	blocked("lease", "another-run")
	e.patch(`{"metadata": {"annotations": {"fairlead.dev/ignore-preflight-errors": "version, lease"}}}`)
	look(v1beta1.ReasonAsWanted)
	if _, err := e.scheduler(); err != nil {
		t.Errorf("the bundle was not applied: %v", err)
	}
}
