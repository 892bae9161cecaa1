// SPDX-License-Identifier: Apache-2.0

package install_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
	"github.com/fairlead-dev/fairlead/pkg/install"
)

// env is a real etcd and kube-apiserver.
type env struct {
	t      *testing.T
	cfg    *rest.Config
	client kubernetes.Interface
	dyn    dynamic.Interface
}

// TestAgainstAPIServer runs all tests that need a real API server against one
// server; each test begins with nothing installed.
func TestAgainstAPIServer(t *testing.T) {
	cp := daemontest.StartControlPlane(t)
	cfg, err := clientcmd.BuildConfigFromFlags("", cp.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	cfg.QPS = -1
	for name, test := range map[string]func(env){
		"fresh, again, upgrade":        testLifecycle,
		"dry run changes nothing":      testDryRun,
		"foreign object":               testForeign,
		"conflict":                     testConflict,
		"after kubectl apply":          testAfterKubectl,
		"killed at every request":      testKilled,
		"concurrent runs":              testConcurrent,
		"missing rights":               testRights,
		"left alone when recreated":    testMadeAnew,
		"roleRef changes":              testRecreate,
		"object that is refused":       testRefused,
		"strict validation":            testStrict,
		"unknown field":                testUnknownField,
		"time limit says why":          testTimeout,
		"inventory that is not ours":   testForeignInventory,
		"uninstall touches only ours":  testUninstall,
		"uninstall without inventory":  testUninstallWithoutInventory,
		"uninstall of nothing":         testUninstallNothing,
		"agents go last":               testAgentsLast,
		"uninstall without lists":      testUnlisted,
		"agents of pools stay":         testPoolPods,
		"scheduler before assignments": testAssignments,
		"an APIService is broken":      testBrokenAPIService,
		"namespaces of others stay":    testNamespaces,
		"beside the bundle of up":      testParties,
		"object of two bundles":        testPartiesCollide,
		"up of an older release":       testPartiesOlder,
		"agents that are in use":       testInUse,
		"agents in use from now on":    testInUseNow,
		"nothing is assigned any more": testUnassigned,
		"foreign selector":             testForeignSelector,
		"foreign namespace":            testForeignNamespace,
		"lock that a killed run holds": testStaleLock,
		"certificate of the gateway":   testGateway,
		"APIService of the tunnel":     testRegistration,
		"CAs are trusted first":        testTrustFirst,
		"certificates of another run":  testRecompute,
	} {
		t.Run(name, func(t *testing.T) {
			e := env{t: t, cfg: cfg, client: kubernetes.NewForConfigOrDie(cfg), dyn: dynamic.NewForConfigOrDie(cfg)}
			e.clean()
			t.Cleanup(e.clean)
			test(e)
		})
	}
}

// objects renders a bundle; edit may be nil.
func objects(t *testing.T, edit func(*v1alpha1.Bundle)) []component.Object {
	t.Helper()
	b := &v1alpha1.Bundle{}
	if edit != nil {
		edit(b)
	}
	out, err := bundle.Render(b)
	if err != nil {
		t.Fatal(err)
	}
	return out.Objects
}

func (e env) apply(objects []component.Object, o install.Options) *install.Result {
	e.t.Helper()
	result, err := install.Apply(e.t.Context(), e.cfg, objects, o)
	if err != nil {
		e.t.Fatal(err)
	}
	return result
}

// clean removes whatever a test has left, without the code under test.
func (e env) clean() {
	ctx := context.Background()
	for _, r := range e.dump() {
		if err := e.dyn.Resource(r.gvr).Namespace(r.Namespace).Delete(ctx, r.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			e.t.Fatal(err)
		}
	}
}

// kinds are those that bundles contain.
var kinds = []schema.GroupVersionResource{
	{Version: "v1", Resource: "serviceaccounts"}, {Version: "v1", Resource: "services"}, {Version: "v1", Resource: "configmaps"}, {Version: "v1", Resource: "secrets"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"}, {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "roles"}, {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"},
	{Group: "policy", Version: "v1", Resource: "poddisruptionbudgets"},
	{Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"},
	{Group: "apps", Version: "v1", Resource: "deployments"}, {Group: "apps", Version: "v1", Resource: "daemonsets"},
	{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingadmissionpolicies"},
	{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingadmissionpolicybindings"},
	{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"},
}

type stored struct {
	Kind, Namespace, Name, Version string
	gvr                            schema.GroupVersionResource
	object                         *unstructured.Unstructured
}

// dump lists all objects in kube-system and all cluster-scoped objects, except
// those that Kubernetes creates itself.
func (e env) dump() map[string]stored {
	e.t.Helper()
	out := map[string]stored{}
	for _, gvr := range kinds {
		list, err := e.dyn.Resource(gvr).List(context.Background(), metav1.ListOptions{})
		if err != nil {
			e.t.Fatal(err)
		}
		for i := range list.Items {
			o := &list.Items[i]
			if ofKubernetes(o) {
				continue
			}
			s := stored{Kind: o.GetKind(), Namespace: o.GetNamespace(), Name: o.GetName(), Version: o.GetResourceVersion(), gvr: gvr, object: o}
			out[s.Kind+" "+s.Namespace+"/"+s.Name] = s
		}
	}
	return out
}

func ofKubernetes(o *unstructured.Unstructured) bool {
	return o.GetLabels()["kubernetes.io/bootstrapping"] != "" || o.GetName() == "kubernetes" ||
		strings.HasPrefix(o.GetName(), "apiserver-") || o.GetName() == "extension-apiserver-authentication" ||
		strings.HasPrefix(o.GetName(), "kube-apiserver-") || o.GetNamespace() == "kube-public"
}

// versions returns the resource versions, to detect any change. It ignores the
// lock.
func (e env) versions() map[string]string {
	out := map[string]string{}
	for k, s := range e.dump() {
		if s.Kind != "Lease" {
			out[k] = s.Version
		}
	}
	return out
}

// names returns the names of all objects except fairlead's inventory and lock.
func (e env) names() map[string]bool {
	out := map[string]bool{}
	for k, s := range e.dump() {
		if s.Name != install.InventoryName && s.Name != install.LockName {
			out[k] = true
		}
	}
	return out
}

func wantNames(objects []component.Object) map[string]bool {
	out := map[string]bool{}
	for _, o := range objects {
		out[o.GetObjectKind().GroupVersionKind().Kind+" "+o.GetNamespace()+"/"+o.GetName()] = true
	}
	return out
}

func (e env) wantExactly(objects []component.Object) {
	e.t.Helper()
	if diff := cmp.Diff(wantNames(objects), e.names()); diff != "" {
		e.t.Errorf("objects in the cluster (-want +got):\n%s", diff)
	}
}

func oldBundle(b *v1alpha1.Bundle) {
	b.Scheduler.Name = "old-scheduler"
	b.Konnectivity.LeaseCounting = ptr.To(true)
	b.Konnectivity.LeaseNamespace = v1alpha1.DefaultNamespace // other namespaces would stay Terminating, because the namespace controller does not run here
}

// blocked runs Apply, expects a BlockedError, and checks that nothing has
// changed.
func (e env) blocked(cfg *rest.Config, objects []component.Object) []install.Problem {
	e.t.Helper()
	before := e.versions()
	_, err := install.Apply(e.t.Context(), cfg, objects, install.Options{})
	var blocked *install.BlockedError
	if !errors.As(err, &blocked) {
		e.t.Fatalf("error %v, want a BlockedError", err)
	}
	if diff := cmp.Diff(before, e.versions()); diff != "" {
		e.t.Errorf("something was changed:\n%s", diff)
	}
	e.t.Logf("%v", err)
	return blocked.Problems
}
