// SPDX-License-Identifier: Apache-2.0

package install_test

import (
	"encoding/json"
	"errors"
	"strings"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/install"
)

// testForeign replaces the bundle's last object by a Deployment that fairlead did not
// create.
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

// testForeignSelector covers an object that fairlead did not create and that differs
// in an immutable field. With and without force, the hint is to delete the object, and
// never to use --force-conflicts, which cannot help.
func testForeignSelector(e env) {
	foreign := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "my-scheduler", Namespace: "kube-system"},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "other"}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "other"}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "mine", Image: "mine"}}},
			},
		},
	}
	if _, err := e.client.AppsV1().Deployments("kube-system").Create(e.t.Context(), foreign, metav1.CreateOptions{FieldManager: "somebody"}); err != nil {
		e.t.Fatal(err)
	}
	for _, force := range []bool{false, true} {
		_, err := install.Apply(e.t.Context(), e.cfg, objects(e.t, nil), install.Options{Force: force}.Quick())
		if err == nil || !strings.Contains(err.Error(), "kubectl delete deployment.apps my-scheduler -n kube-system") || strings.Contains(err.Error(), "--force-conflicts") {
			e.t.Errorf("force %v: %v", force, err)
		}
	}
}

// testForeignNamespace checks that an existing namespace without the bundle's labels
// is refused, and that the error names the fields that differ.
func testForeignNamespace(e env) {
	e.makeNamespace("sched3")
	e.t.Cleanup(func() { e.dropNamespace("sched3") })
	problems := e.blocked(e.cfg, objects(e.t, func(b *v1alpha1.Bundle) { b.Namespace = "sched3" }))
	if len(problems) != 1 || problems[0].Reason != install.ReasonForeign || len(problems[0].Conflicts) == 0 {
		e.t.Fatalf("%+v", problems)
	}
	for _, c := range problems[0].Conflicts {
		if !strings.HasPrefix(c.Field, ".metadata.labels.pod-security.kubernetes.io/") || c.Live != "absent" || c.Wanted == "absent" {
			e.t.Errorf("%+v", c)
		}
	}
}

// testConflict observes API-51 and API-53 of docs/requirements.md.
// It also observes OLD-70 and OLD-71 of docs/requirements.md.
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

// kubectlApply does what `kubectl apply` does the first time: it writes an annotation,
// and updates the object under kubectl's manager name.
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
	gvr, _ := meta.UnsafeGuessKindToResource(u.GroupVersionKind())
	return gvr
}

// testAfterKubectl observes API-54 and API-62 of docs/requirements.md.
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
	// Fields that the bundle drops must be removed, although kubectl has set them.
	less := objects(e.t, func(b *v1alpha1.Bundle) { b.Konnectivity.Agent.Tolerations = &v1alpha1.Tolerations{} })
	e.apply(less, install.Options{})
	agents, err := e.client.AppsV1().DaemonSets("kube-system").Get(e.t.Context(), "konnectivity-agent", metav1.GetOptions{})
	if err != nil || len(agents.Spec.Template.Spec.Tolerations) != 0 {
		e.t.Errorf("tolerations %v, %v", agents.Spec.Template.Spec.Tolerations, err)
	}
	// With other settings the user must decide.
	e.clean()
	e.kubectlApply(all)
	if problems := e.blocked(e.cfg, less); len(problems) != 1 || problems[0].Reason != install.ReasonForeign {
		e.t.Errorf("%+v", problems)
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
		e.t.Errorf("the object that replaced ours was deleted: %v", err)
	}
}

func testForeignInventory(e env) {
	_, err := e.client.CoreV1().ConfigMaps("kube-system").Create(e.t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: install.InventoryName}, Data: map[string]string{"ships": "3"},
	}, metav1.CreateOptions{})
	if err != nil {
		e.t.Fatal(err)
	}
	before := e.versions()
	if _, err := install.Apply(e.t.Context(), e.cfg, objects(e.t, nil), install.Options{}.Quick()); !errors.Is(err, install.ErrInventory) {
		e.t.Errorf("error %v", err)
	}
	if diff := cmp.Diff(before, e.versions()); diff != "" {
		e.t.Errorf("something was changed:\n%s", diff)
	}
}
