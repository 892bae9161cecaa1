package install_test

import (
	"encoding/json"
	"errors"
	"strings"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/install"
)

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
