// SPDX-License-Identifier: Apache-2.0

package install_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

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

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
	"github.com/fairlead-dev/fairlead/pkg/install"
)

// env is a real etcd and kube-apiserver. Its objects go with the test: see daemontest.TakeControlPlane.
type env struct {
	t      *testing.T
	cfg    *rest.Config
	client kubernetes.Interface
	dyn    dynamic.Interface
}

func TestMain(m *testing.M) { os.Exit(daemontest.RunShared(m)) }

// integration is a test against a real API server. Those with a reason not to be in `make test` run in `make test-all` only.
type integration struct {
	test func(env)
	full string
}

const (
	slow    = "takes more than two seconds, and is not part of the main path"
	variant = "a variant of what the other tests show"
)

// TestAgainstAPIServer runs all tests that need a real API server. Each of them has one to itself, in which nothing is
// installed.
func TestAgainstAPIServer(t *testing.T) {
	testutil.Integration(t, "kube-apiserver")
	for name, i := range map[string]integration{
		"fresh, again, upgrade":        {test: testLifecycle},
		"dry run changes nothing":      {test: testDryRun},
		"foreign object":               {test: testForeign},
		"conflict":                     {test: testConflict},
		"after kubectl apply":          {test: testAfterKubectl, full: slow},
		"killed before some writes":    {test: func(e env) { testKilled(e, 1, 15) }},
		"killed before odd writes":     {test: func(e env) { testKilled(e, 1, 2) }, full: slow},
		"killed before even writes":    {test: func(e env) { testKilled(e, 2, 2) }, full: slow},
		"concurrent runs":              {test: testConcurrent, full: slow},
		"missing rights":               {test: testRights},
		"left alone when recreated":    {test: testMadeAnew, full: variant},
		"roleRef changes":              {test: testRecreate, full: variant},
		"object that is refused":       {test: testRefused},
		"strict validation":            {test: testStrict, full: slow},
		"unknown field":                {test: testUnknownField},
		"time limit says why":          {test: testTimeout, full: slow},
		"inventory that is not ours":   {test: testForeignInventory},
		"uninstall touches only ours":  {test: testUninstall},
		"uninstall without inventory":  {test: testUninstallWithoutInventory, full: variant},
		"uninstall of nothing":         {test: testUninstallNothing},
		"agents go last":               {test: testAgentsLast, full: slow},
		"uninstall without lists":      {test: testUnlisted, full: variant},
		"agents of pools stay":         {test: testPoolPods, full: slow},
		"scheduler before assignments": {test: testAssignments, full: slow},
		"an APIService is broken":      {test: testBrokenAPIService, full: slow},
		"namespaces of others stay":    {test: testNamespaces, full: slow},
		"beside the bundle of up":      {test: testParties, full: slow},
		"object of two bundles":        {test: testPartiesCollide, full: slow},
		"up of an older release":       {test: testPartiesOlder, full: slow},
		"agents that are in use":       {test: testInUse, full: slow},
		"agents in use from now on":    {test: testInUseNow, full: slow},
		"nothing is assigned any more": {test: testUnassigned, full: slow},
		"foreign selector":             {test: testForeignSelector},
		"foreign namespace":            {test: testForeignNamespace},
		"lock that a killed run holds": {test: testStaleLock, full: slow},
		"certificate of the gateway":   {test: testGateway, full: slow},
		"APIService of the tunnel":     {test: testRegistration, full: slow},
		"CAs are trusted first":        {test: testTrustFirst, full: slow},
		"certificates of another run":  {test: testRecompute},
	} {
		t.Run(name, func(t *testing.T) {
			if i.full != "" {
				testutil.Full(t, i.full)
			}
			daemontest.Beside(t)
			testutil.Limit(t, 3*time.Minute) // with eight busy loops
			cp := daemontest.TakeControlPlane(t)
			cfg, err := clientcmd.BuildConfigFromFlags("", cp.Kubeconfig)
			if err != nil {
				t.Fatal(err)
			}
			cfg.QPS = -1
			i.test(env{t: t, cfg: cfg, client: kubernetes.NewForConfigOrDie(cfg), dyn: dynamic.NewForConfigOrDie(cfg)})
		})
	}
}

// limited calls a run with a time limit that grows until the run ends with an error that the test is about. How long a
// run takes until it waits depends on the machine.
func (e env) limited(text string, run func(limit time.Duration) error) error {
	e.t.Helper()
	for limit := time.Second; ; limit *= 2 {
		err := run(limit)
		if err == nil || strings.Contains(err.Error(), text) {
			return err
		}
		if limit > time.Minute {
			e.t.Fatalf("after %v: %v, want %q", limit, err, text)
		}
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
	result, err := install.Apply(e.t.Context(), e.cfg, objects, o.Quick())
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
	_, err := install.Apply(e.t.Context(), cfg, objects, install.Options{}.Quick())
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
