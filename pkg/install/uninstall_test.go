// SPDX-License-Identifier: Apache-2.0

package install_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/install"
)

func (e env) uninstall() *install.Result {
	e.t.Helper()
	r, err := install.Uninstall(e.t.Context(), e.cfg, install.UninstallOptions{Wait: true, Timeout: time.Minute}.Quick())
	if err != nil {
		e.t.Fatal(err)
	}
	return r
}

// bystanders creates objects that are not fairlead's and look much like ours.
func (e env) bystanders() {
	e.t.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "my-scheduler-notes", Namespace: "kube-system", Labels: map[string]string{"app.kubernetes.io/managed-by": "fairlead"}}}
	// client-go names the manager after the program, so this is an update by
	// "fairlead" and not an apply.
	if _, err := e.client.CoreV1().ConfigMaps("kube-system").Create(e.t.Context(), cm, metav1.CreateOptions{FieldManager: install.FieldManager}); err != nil {
		e.t.Fatal(err)
	}
	lease := newLease("other-scheduler", "other", metav1.NewMicroTime(time.Now()))
	if _, err := e.client.CoordinationV1().Leases("kube-system").Create(e.t.Context(), lease, metav1.CreateOptions{}); err != nil {
		e.t.Fatal(err)
	}
}

func newLease(name, holder string, renewed metav1.MicroTime) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "kube-system"},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: ptr.To[int32](10), RenewTime: &renewed, AcquireTime: &renewed},
	}
}

func testUninstall(e env) {
	e.bystanders()
	before := e.versions()
	all := objects(e.t, nil)
	leases := install.LeasesOf(nil)
	e.apply(all, install.Options{Leases: leases})
	if _, err := e.client.CoordinationV1().Leases("kube-system").Create(e.t.Context(), newLease("my-scheduler", "my-scheduler-57d-x_1", metav1.NewMicroTime(time.Now())), metav1.CreateOptions{}); err != nil {
		e.t.Fatal(err)
	}
	installed := e.versions()
	r, err := install.Uninstall(e.t.Context(), e.cfg, install.UninstallOptions{DryRun: true}.Quick())
	if err != nil || r.Count(install.Deleted) != len(all)+1 {
		e.t.Errorf("dry run: %v, %+v", err, r.Objects)
	}
	if diff := cmp.Diff(installed, e.versions()); diff != "" {
		e.t.Errorf("the dry run changed something:\n%s", diff)
	}
	if r := e.uninstall(); r.Count(install.Deleted) != len(all)+1 {
		e.t.Errorf("%+v", r.Objects)
	}
	if diff := cmp.Diff(before, e.versions()); diff != "" {
		e.t.Errorf("the cluster is not as before (-want +got):\n%s", diff)
	}
	for name := range e.dump() {
		if strings.Contains(name, "fairlead") || name == "Lease kube-system/my-scheduler" {
			e.t.Errorf("left %s", name)
		}
	}
}

func testUninstallWithoutInventory(e env) {
	e.bystanders()
	before := e.names()
	e.apply(objects(e.t, oldBundle), install.Options{})
	if err := e.client.CoreV1().ConfigMaps("kube-system").Delete(e.t.Context(), install.InventoryName, metav1.DeleteOptions{}); err != nil {
		e.t.Fatal(err)
	}
	e.uninstall()
	if diff := cmp.Diff(before, e.names()); diff != "" {
		e.t.Errorf("the cluster is not as before (-want +got):\n%s", diff)
	}
}

// testAssignments checks that the policies which assign Pods to the second
// scheduler exist only while the scheduler does: a Pod created without it would
// stay Pending for ever, as spec.schedulerName is immutable. A lost inventory loses
// no policy.
func testAssignments(e env) {
	all := objects(e.t, func(b *v1alpha1.Bundle) {
		b.Scheduler.Assignments = []v1alpha1.Assignment{{SchedulerName: "my-scheduler", PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"batch": "true"}}}}
	})
	before := e.names()
	installed := e.apply(all, install.Options{})
	last := []string{"Deployment", "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"}
	if diff := cmp.Diff(last, kindsOf(installed)[len(all)-3:]); diff != "" {
		e.t.Errorf("applied last (-want +got):\n%s", diff)
	}
	if err := e.client.CoreV1().ConfigMaps("kube-system").Delete(e.t.Context(), install.InventoryName, metav1.DeleteOptions{}); err != nil {
		e.t.Fatal(err)
	}
	first := []string{"MutatingAdmissionPolicyBinding", "MutatingAdmissionPolicy", "Deployment"}
	gone := kindsOf(e.uninstall())
	if diff := cmp.Diff(first, gone[:min(len(gone), 3)]); diff != "" {
		e.t.Errorf("deleted first (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before, e.names()); diff != "" {
		e.t.Errorf("the cluster is not as before (-want +got):\n%s", diff)
	}
}

// testBrokenAPIService checks that an aggregated API that does not answer keeps
// only the namespace, which may contain the API's objects.
func testBrokenAPIService(e env) {
	services := e.dyn.Resource(schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"})
	broken := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": map[string]any{"name": "v1.broken.example.com"},
		"spec": map[string]any{
			"group": "broken.example.com", "version": "v1", "groupPriorityMinimum": int64(100), "versionPriority": int64(1),
			"insecureSkipTLSVerify": true, "service": map[string]any{"namespace": "default", "name": "none"},
		},
	}}
	if _, err := services.Create(e.t.Context(), broken, metav1.CreateOptions{}); err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() {
		if err := services.Delete(context.Background(), broken.GetName(), metav1.DeleteOptions{}); err != nil {
			e.t.Error(err)
		}
	})
	testutil.Eventually(e.t, time.Minute, func() error {
		if _, err := e.client.Discovery().ServerPreferredNamespacedResources(); !discovery.IsGroupDiscoveryFailedError(err) {
			return fmt.Errorf("discovery says %w: the API server does not know the service yet", err)
		}
		return nil
	})
	before := e.names()
	e.apply(objects(e.t, func(b *v1alpha1.Bundle) { b.Namespace = "beside-broken" }), install.Options{})
	r := e.uninstall()
	kept := slices.DeleteFunc(r.Objects, func(o install.ObjectResult) bool { return o.Action == install.Deleted })
	if len(kept) != 1 || kept[0].Kind != "Namespace" || !strings.Contains(kept[0].Note, "cannot see what it holds") {
		e.t.Errorf("kept %+v", kept)
	}
	if diff := cmp.Diff(before, e.names()); diff != "" {
		e.t.Errorf("the cluster is not as before (-want +got):\n%s", diff)
	}
}

func kindsOf(r *install.Result) []string {
	var out []string
	for _, o := range r.Objects {
		out = append(out, o.Kind)
	}
	return out
}

func testUninstallNothing(e env) {
	if r := e.uninstall(); len(r.Objects) != 0 {
		e.t.Errorf("%+v", r.Objects)
	}
	if left := e.dump(); len(left) != 0 {
		e.t.Errorf("left %v", left)
	}
}

// testRecreate: a binding's roleRef is immutable, so Apply deletes and recreates
// the binding.
func testRecreate(e env) {
	all := objects(e.t, nil)
	e.apply(all, install.Options{})
	for _, o := range all {
		if binding, ok := o.(*rbacv1.ClusterRoleBinding); ok && strings.HasSuffix(binding.Name, "volume-scheduler") {
			binding.RoleRef.Name = "system:node-problem-detector"
		}
	}
	if r := e.apply(all, install.Options{}); r.Count(install.Recreated) != 1 {
		e.t.Errorf("%+v", r.Objects)
	}
	if r := e.apply(all, install.Options{}); r.Count(install.Unchanged) != len(all) {
		e.t.Errorf("%+v", r.Objects)
	}
}

// bindEdit grants a user in kube-system what Kubernetes' ClusterRole edit allows (a
// controller aggregates it, which does not run here), and what install needs for
// its lock.
func (e env) bindEdit(user string) {
	e.t.Helper()
	ctx, rbac := e.t.Context(), e.client.RbacV1()
	subject := []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: user}}
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "test-lock", Namespace: "kube-system"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "create", "update"}},
		{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"roles", "rolebindings"}, Verbs: []string{"get"}},
	}}
	if _, err := rbac.Roles("kube-system").Create(ctx, role, metav1.CreateOptions{}); err != nil {
		e.t.Fatal(err)
	}
	for name, kind := range map[string]string{"test-lock": "Role", "system:aggregate-to-edit": "ClusterRole", "system:aggregate-to-view": "ClusterRole"} {
		binding := &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "test-" + name, Namespace: "kube-system"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: name}, Subjects: subject,
		}
		if _, err := rbac.RoleBindings("kube-system").Create(ctx, binding, metav1.CreateOptions{}); err != nil {
			e.t.Fatal(err)
		}
	}
	cfg := rest.CopyConfig(e.cfg)
	cfg.Impersonate.UserName = user
	// The authorizer sees new bindings only after a moment.
	testutil.Eventually(e.t, time.Minute, func() error {
		_, err := kubernetes.NewForConfigOrDie(cfg).CoreV1().ConfigMaps("kube-system").List(ctx, metav1.ListOptions{})
		if err == nil {
			_, err = kubernetes.NewForConfigOrDie(cfg).CoordinationV1().Leases("kube-system").Get(ctx, "none", metav1.GetOptions{})
		}
		return ignoreNotFound(err)
	})
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func TestLeasesOf(t *testing.T) {
	want := []install.Lease{{Namespace: "kube-system", Name: "my-scheduler", HolderPrefix: "my-scheduler-"}}
	if diff := cmp.Diff(want, install.LeasesOf(nil)); diff != "" {
		t.Error(diff)
	}
}
