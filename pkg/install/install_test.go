package install_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
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

// TestAgainstAPIServer runs all tests that need a real API server on one; each
// begins with nothing installed.
func TestAgainstAPIServer(t *testing.T) {
	cp := daemontest.StartControlPlane(t, "")
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
		"left alone when made anew":    testMadeAnew,
		"roleRef changes":              testRecreate,
		"object that is refused":       testRefused,
		"time limit says why":          testTimeout,
		"inventory of somebody else":   testForeignInventory,
		"uninstall touches only ours":  testUninstall,
		"uninstall without inventory":  testUninstallWithoutInventory,
		"uninstall of nothing":         testUninstallNothing,
		"scheduler before assignments": testAssignments,
		"an APIService is broken":      testBrokenAPIService,
		"namespaces of others stay":    testNamespaces,
		"lock that a killed run holds": testStaleLock,
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

// clean removes whatever a test has left, by other means than the code under test.
func (e env) clean() {
	ctx := context.Background()
	for _, r := range e.dump() {
		if err := e.dyn.Resource(r.gvr).Namespace(r.Namespace).Delete(ctx, r.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			e.t.Fatal(err)
		}
	}
}

// kinds are all that bundles are made of.
var kinds = []schema.GroupVersionResource{
	{Version: "v1", Resource: "serviceaccounts"}, {Version: "v1", Resource: "services"}, {Version: "v1", Resource: "configmaps"}, {Version: "v1", Resource: "secrets"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "roles"}, {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"},
	{Group: "policy", Version: "v1", Resource: "poddisruptionbudgets"},
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

// dump lists everything of kube-system and the cluster that Kubernetes does not
// make itself.
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

// versions tells whether anything changed. The lock does not count.
func (e env) versions() map[string]string {
	out := map[string]string{}
	for k, s := range e.dump() {
		if s.Kind != "Lease" {
			out[k] = s.Version
		}
	}
	return out
}

// names are those of all objects but fairlead's own books.
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
}

func testLifecycle(e env) {
	old := objects(e.t, oldBundle)
	if r := e.apply(old, install.Options{}); r.Count(install.Created) != len(old) {
		e.t.Errorf("fresh: %+v", r.Objects)
	}
	e.wantExactly(old)
	before := e.versions()
	if r := e.apply(old, install.Options{}); r.Count(install.Unchanged) != len(old) {
		e.t.Errorf("again: %+v", r.Objects)
	}
	if diff := cmp.Diff(before, e.versions()); diff != "" {
		e.t.Errorf("the second run changed something:\n%s", diff)
	}
	now := objects(e.t, nil)
	r := e.apply(now, install.Options{})
	gone := 0
	for name := range wantNames(old) {
		if !wantNames(now)[name] {
			gone++
		}
	}
	if r.Count(install.Deleted) != gone || gone < 8 {
		e.t.Errorf("upgrade deleted %d, want %d: %+v", r.Count(install.Deleted), gone, r.Objects)
	}
	e.wantExactly(now)
}

func testDryRun(e env) {
	e.apply(objects(e.t, oldBundle), install.Options{})
	before := e.versions()
	now := objects(e.t, nil)
	r := e.apply(now, install.Options{DryRun: true})
	if !r.DryRun || r.Count(install.Created) == 0 || r.Count(install.Deleted) == 0 || r.Count(install.Unchanged) == 0 || r.Count(install.Configured) == 0 {
		e.t.Errorf("dry run says %+v", r.Objects)
	}
	if diff := cmp.Diff(before, e.versions()); diff != "" {
		e.t.Errorf("the dry run changed something:\n%s", diff)
	}
	if done := e.apply(now, install.Options{}); !cmp.Equal(actions(r), actions(done)) {
		e.t.Errorf("dry run and run differ:\n%s", cmp.Diff(actions(r), actions(done)))
	}
}

func actions(r *install.Result) map[install.Ref]install.Action {
	out := map[install.Ref]install.Action{}
	for _, o := range r.Objects {
		out[o.Ref] = o.Action
	}
	return out
}

// blocked applies, wants to be refused, and wants that nothing has changed.
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

// testForeign puts an object of somebody else in the place of the last one.
func testForeign(e env) {
	all := objects(e.t, nil)
	foreign := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "my-scheduler", Namespace: "kube-system"},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app.kubernetes.io/name": "my-scheduler", "component": "scheduler", "tier": "control-plane"}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app.kubernetes.io/name": "my-scheduler", "component": "scheduler", "tier": "control-plane"}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "mine", Image: "mine"}}},
			},
		},
	}
	if _, err := e.client.AppsV1().Deployments("kube-system").Create(e.t.Context(), foreign, metav1.CreateOptions{FieldManager: "somebody"}); err != nil {
		e.t.Fatal(err)
	}
	problems := e.blocked(e.cfg, all)
	if len(problems) != 1 || problems[0].Object.Name != "my-scheduler" || problems[0].Hint == "" {
		e.t.Errorf("%+v", problems)
	}
	if r := e.apply(all, install.Options{Force: true}); r.Count(install.Adopted) != 1 {
		e.t.Errorf("%+v", r.Objects)
	}
	if r := e.apply(all, install.Options{}); r.Count(install.Unchanged) != len(all) {
		e.t.Errorf("after adoption: %+v", r.Objects)
	}
}

func testConflict(e env) {
	all := objects(e.t, nil)
	e.apply(all, install.Options{})
	_, err := e.client.AppsV1().Deployments("kube-system").Patch(e.t.Context(), "my-scheduler", types.MergePatchType,
		[]byte(`{"spec":{"replicas":5,"template":{"spec":{"containers":null}}}}`), metav1.PatchOptions{FieldManager: "autoscaler", DryRun: []string{"All"}})
	if err == nil {
		e.t.Error("a Deployment without containers was accepted")
	}
	if _, err := e.client.AppsV1().Deployments("kube-system").Patch(e.t.Context(), "my-scheduler", types.StrategicMergePatchType,
		[]byte(`{"spec":{"replicas":5,"template":{"spec":{"containers":[{"name":"kube-second-scheduler","image":"other"}]}}}}`), metav1.PatchOptions{FieldManager: "autoscaler"}); err != nil {
		e.t.Fatal(err)
	}
	problems := e.blocked(e.cfg, all)
	if len(problems) != 1 || problems[0].Reason != install.ReasonConflict || len(problems[0].Conflicts) != 2 {
		e.t.Fatalf("%+v", problems)
	}
	for _, c := range problems[0].Conflicts {
		want := install.Conflict{Field: ".spec.replicas", Live: "5", Wanted: "2"}
		if c.Field != want.Field {
			want = install.Conflict{Field: `.spec.template.spec.containers[name="kube-second-scheduler"].image`, Live: `"other"`, Wanted: `"` + v1alpha1.DefaultSchedulerImage + `"`}
		}
		if !strings.HasPrefix(c.Owner, "autoscaler (Update at ") {
			e.t.Errorf("owner %q", c.Owner)
		}
		c.Owner = ""
		if diff := cmp.Diff(want, c); diff != "" {
			e.t.Errorf("conflict (-want +got):\n%s", diff)
		}
	}
	if r := e.apply(all, install.Options{Force: true}); r.Count(install.Configured) != 1 {
		e.t.Errorf("%+v", r.Objects)
	}
}

// kubectlApply does what `kubectl apply` does the first time: an annotation, and an
// update under its name.
func (e env) kubectlApply(objects []component.Object) {
	e.t.Helper()
	for _, o := range objects {
		u, err := bundle.Manifest(o)
		if err != nil {
			e.t.Fatal(err)
		}
		data, err := json.Marshal(u.Object)
		if err != nil {
			e.t.Fatal(err)
		}
		u.SetAnnotations(map[string]string{corev1.LastAppliedConfigAnnotation: string(data)})
		if _, err := e.dyn.Resource(gvrOf(u)).Namespace(u.GetNamespace()).Create(e.t.Context(), u, metav1.CreateOptions{FieldManager: "kubectl-client-side-apply"}); err != nil {
			e.t.Fatal(err)
		}
	}
}

func gvrOf(u *unstructured.Unstructured) schema.GroupVersionResource {
	gvk := u.GroupVersionKind()
	return gvk.GroupVersion().WithResource(strings.ToLower(gvk.Kind) + "s")
}

func testAfterKubectl(e env) {
	all := objects(e.t, nil)
	e.kubectlApply(all)
	if r := e.apply(all, install.Options{}); r.Count(install.Adopted) != len(all) {
		e.t.Errorf("%+v", r.Objects)
	}
	for name, s := range e.dump() {
		for _, m := range s.object.GetManagedFields() {
			if m.Manager == "kubectl-client-side-apply" {
				e.t.Errorf("%s: kubectl still owns fields", name)
			}
		}
		if s.object.GetAnnotations()[corev1.LastAppliedConfigAnnotation] != "" {
			e.t.Errorf("%s: still has kubectl's annotation", name)
		}
	}
	// Fields that the bundle drops must go, though kubectl has set them.
	less := objects(e.t, func(b *v1alpha1.Bundle) { b.Konnectivity.Agent.Tolerations = &v1alpha1.Tolerations{} })
	e.apply(less, install.Options{})
	agents, err := e.client.AppsV1().DaemonSets("kube-system").Get(e.t.Context(), "konnectivity-agent", metav1.GetOptions{})
	if err != nil || len(agents.Spec.Template.Spec.Tolerations) != 0 {
		e.t.Errorf("tolerations %v, %v", agents.Spec.Template.Spec.Tolerations, err)
	}
	// With other settings it is a matter for people.
	e.clean()
	e.kubectlApply(all)
	if problems := e.blocked(e.cfg, less); len(problems) != 1 || problems[0].Reason != install.ReasonForeign {
		e.t.Errorf("%+v", problems)
	}
}

// errKilled ends a run as if its process had been killed: no request leaves any more.
var errKilled = errors.New("killed")

// dying lets n writes through; the last one may or may not reach the API server.
type dying struct {
	next    http.RoundTripper
	left    atomic.Int64
	arrives bool
}

func (d *dying) RoundTrip(r *http.Request) (*http.Response, error) {
	writes := r.Method != http.MethodGet && !strings.Contains(r.URL.RawQuery, "dryRun") && !strings.Contains(r.URL.Path, "selfsubject")
	if !writes {
		if d.left.Load() <= 0 {
			return nil, errKilled
		}
		return d.next.RoundTrip(r)
	}
	switch left := d.left.Add(-1); {
	case left > 0:
		return d.next.RoundTrip(r)
	case left == 0 && d.arrives:
		if resp, err := d.next.RoundTrip(r); err == nil {
			_ = resp.Body.Close()
		}
	}
	return nil, errKilled
}

// testKilled cuts an upgrade off at each of its writes, before and after it
// reached the API server, and wants the next run to complete it.
func testKilled(e env) {
	old, now := objects(e.t, oldBundle), objects(e.t, nil)
	for _, arrives := range []bool{true, false} {
		for n := int64(1); ; n++ {
			e.clean()
			e.apply(old, install.Options{})
			d := &dying{arrives: arrives}
			d.left.Store(n)
			cfg := rest.CopyConfig(e.cfg)
			cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { d.next = next; return d })
			_, err := install.Apply(e.t.Context(), cfg, now, install.Options{Timeout: time.Second})
			e.breakLock()
			e.apply(now, install.Options{})
			e.wantExactly(now)
			if err == nil {
				e.t.Logf("a whole run makes %d writes", n-1)
				break
			}
			if n > 200 {
				e.t.Fatalf("still fails: %v", err)
			}
		}
	}
}

// breakLock spares tests the time for which a killed run holds it.
func (e env) breakLock() {
	if err := e.client.CoordinationV1().Leases("kube-system").Delete(e.t.Context(), install.LockName, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		e.t.Fatal(err)
	}
}

// testConcurrent lets two bundles be installed at once, several times: one after
// the other wins, and nothing of the loser is left.
func testConcurrent(e env) {
	old, now := objects(e.t, oldBundle), objects(e.t, nil)
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			if _, err := install.Apply(e.t.Context(), e.cfg, [][]component.Object{old, now}[i%2], install.Options{}); err != nil {
				e.t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := e.names(); !cmp.Equal(got, wantNames(old)) && !cmp.Equal(got, wantNames(now)) {
		e.t.Errorf("a mixture of both: %v", got)
	}
}

func testRights(e env) {
	cfg := rest.CopyConfig(e.cfg)
	cfg.Impersonate = rest.ImpersonationConfig{UserName: "nobody"}
	before := e.versions()
	_, err := install.Apply(e.t.Context(), cfg, objects(e.t, nil), install.Options{})
	if !errors.Is(err, install.ErrForbidden) || !strings.Contains(err.Error(), "create leases.coordination.k8s.io in kube-system") ||
		!strings.Contains(err.Error(), "patch clusterrolebindings.rbac.authorization.k8s.io in the whole cluster") {
		e.t.Errorf("error %v", err)
	}
	if diff := cmp.Diff(before, e.versions()); diff != "" {
		e.t.Errorf("something was changed:\n%s", diff)
	}
	// Who may edit the namespace may not give out rights.
	e.bindEdit("editor")
	cfg.Impersonate.UserName = "editor"
	problems := e.blocked(cfg, objects(e.t, nil))
	kinds := map[string]int{}
	for _, p := range problems {
		if p.Reason != install.ReasonForbidden || p.Hint == "" {
			e.t.Errorf("%+v", p)
		}
		kinds[p.Object.Kind]++
	}
	if want := map[string]int{"ClusterRoleBinding": 3, "Role": 1, "RoleBinding": 2}; !cmp.Equal(kinds, want) {
		e.t.Errorf("refused are %v, want %v", kinds, want)
	}
}

func testMadeAnew(e env) {
	old := objects(e.t, oldBundle)
	e.apply(old, install.Options{})
	sas := e.client.CoreV1().ServiceAccounts("kube-system")
	if err := sas.Delete(e.t.Context(), "old-scheduler", metav1.DeleteOptions{}); err != nil {
		e.t.Fatal(err)
	}
	if _, err := sas.Create(e.t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "old-scheduler"}}, metav1.CreateOptions{FieldManager: "somebody"}); err != nil {
		e.t.Fatal(err)
	}
	e.apply(objects(e.t, nil), install.Options{})
	if _, err := sas.Get(e.t.Context(), "old-scheduler", metav1.GetOptions{}); err != nil {
		e.t.Errorf("what somebody else made in place of ours was deleted: %v", err)
	}
}

func testRefused(e env) {
	all := objects(e.t, nil)
	last := all[len(all)-1].(*appsv1.Deployment)
	last.Spec.Template.Spec.Containers[0].Image = ""
	if problems := e.blocked(e.cfg, all); len(problems) != 1 || problems[0].Reason != install.ReasonRefused || !strings.Contains(problems[0].Message, "image") {
		e.t.Errorf("%+v", problems)
	}
}

func testTimeout(e env) {
	_, err := install.Apply(e.t.Context(), e.cfg, objects(e.t, nil), install.Options{Wait: true, Timeout: 4 * time.Second})
	var rollout *install.RolloutError
	if !errors.As(err, &rollout) || !strings.Contains(err.Error(), "--timeout") || !strings.Contains(err.Error(), "controller") {
		e.t.Errorf("error %v", err)
	}
	e.wantExactly(objects(e.t, nil))
}

func testForeignInventory(e env) {
	_, err := e.client.CoreV1().ConfigMaps("kube-system").Create(e.t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: install.InventoryName}, Data: map[string]string{"ships": "3"},
	}, metav1.CreateOptions{})
	if err != nil {
		e.t.Fatal(err)
	}
	before := e.versions()
	if _, err := install.Apply(e.t.Context(), e.cfg, objects(e.t, nil), install.Options{}); !errors.Is(err, install.ErrInventory) {
		e.t.Errorf("error %v", err)
	}
	if diff := cmp.Diff(before, e.versions()); diff != "" {
		e.t.Errorf("something was changed:\n%s", diff)
	}
}

func testStaleLock(e env) {
	now := metav1.NewMicroTime(time.Now())
	lease := newLease(install.LockName, "killed", now)
	if _, err := e.client.CoordinationV1().Leases("kube-system").Create(e.t.Context(), lease, metav1.CreateOptions{}); err != nil {
		e.t.Fatal(err)
	}
	_, err := install.Apply(e.t.Context(), e.cfg, objects(e.t, nil), install.Options{Timeout: time.Second})
	if err == nil || !strings.Contains(err.Error(), `"killed" holds`) {
		e.t.Errorf("error %v", err)
	}
	begin := time.Now()
	e.apply(objects(e.t, nil), install.Options{})
	e.t.Logf("took the lock after %v", time.Since(begin))
}
