// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/v1beta1"
	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	config "github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
	"github.com/fairlead-dev/fairlead/pkg/install"
	"github.com/fairlead-dev/fairlead/pkg/operator"
)

// TestAdopted: every object that the command has applied, of a bundle with all parts, is byte for byte the same after the
// operator has looked at a Bundle with the same spec.
func TestAdopted(t *testing.T) {
	testutil.Full(t, "byte for byte comparison of a bundle with all parts; TestBundle shows that objects are adopted")
	daemontest.Beside(t)
	e := start(t)
	e.definitions()
	spec := map[string]any{
		"gateway": map[string]any{"enabled": true}, "tunnelAPI": map[string]any{"enabled": true}, "konnectivity": map[string]any{"leaseCounting": true},
		"scheduler": map[string]any{"assignments": []any{map[string]any{
			"schedulerName": "my-scheduler", "podSelector": map[string]any{"matchLabels": map[string]any{"batch": "true"}},
		}}},
	}
	wanted := e.loaded(spec)
	objects, err := install.Objects(t.Context(), e.cfg, wanted, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	e.answers(objects)
	if _, err := install.Apply(t.Context(), e.cfg, objects, install.Options{}); err != nil {
		t.Fatal(err)
	}
	before := e.stored(objects)
	if _, err := e.bundles.Create(t.Context(), object("Bundle", "", "default", spec), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	r := &operator.BundleReconciler{Client: newRacing(t, e.cfg), Config: e.cfg, Events: events.NewFakeRecorder(1000)}
	if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: "default"}}); err != nil {
		t.Fatal(err)
	}
	e.reconciled(v1beta1.ReasonAsWanted)
	if diff := cmp.Diff(before, e.stored(objects)); diff != "" {
		t.Errorf("-before +after:\n%s", diff)
	}
	kinds := map[string]bool{}
	for _, o := range objects {
		kinds[o.GetObjectKind().GroupVersionKind().Kind] = true
	}
	for _, kind := range []string{"ConfigMap", "ClusterRole", "RoleBinding", "Secret", "APIService", "FlowSchema", "MutatingAdmissionPolicy", "Deployment", "DaemonSet"} {
		if !kinds[kind] {
			t.Errorf("the bundle has no %s, so the test proves nothing about it", kind)
		}
	}
}

// answers has an endpoint for the Service of each APIService: the command waits for one.
func (e *env) answers(objects []component.Object) {
	e.Helper()
	client := kubernetes.NewForConfigOrDie(e.cfg)
	for _, o := range objects {
		service, ok := o.(*apiregistrationv1.APIService)
		if !ok {
			continue
		}
		backend := service.Spec.Service
		if _, err := client.DiscoveryV1().EndpointSlices(backend.Namespace).Create(e.Context(), &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Name: backend.Name, Namespace: backend.Namespace, Labels: map[string]string{discoveryv1.LabelServiceName: backend.Name}},
			AddressType: discoveryv1.AddressTypeIPv4,
			Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.1"}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}}},
		}, metav1.CreateOptions{}); err != nil {
			e.Fatal(err)
		}
	}
}

// stored returns the objects as the API server has them, without what it says about their state.
func (e *env) stored(objects []component.Object) map[string]string {
	e.Helper()
	dyn := dynamic.NewForConfigOrDie(e.cfg)
	all := map[string]string{}
	for _, o := range objects {
		gvk := o.GetObjectKind().GroupVersionKind()
		resource, _ := meta.UnsafeGuessKindToResource(gvk)
		live, err := dyn.Resource(resource).Namespace(o.GetNamespace()).Get(e.Context(), o.GetName(), metav1.GetOptions{})
		if err != nil {
			e.Fatalf("%s %s: %v", gvk.Kind, o.GetName(), err)
		}
		if gvk.Kind == "APIService" || gvk.Kind == "FlowSchema" || gvk.Kind == "PriorityLevelConfiguration" { // the API server writes their status
			live.SetResourceVersion("")
			live.SetManagedFields(nil)
		}
		delete(live.Object, "status")
		text, err := json.Marshal(live.Object)
		if err != nil {
			e.Fatal(err)
		}
		all[gvk.Kind+" "+o.GetNamespace()+"/"+o.GetName()] = string(text)
	}
	return all
}

// TestAdoptedFromKubectl: the operator adopts objects that kubectl has applied from the same bundle, unless it only observes:
// the inventory lists them, the status has their images, later changes are applied, and they go with the Bundle.
func TestAdoptedFromKubectl(t *testing.T) {
	testutil.Full(t, "a variant of TestBundle")
	daemontest.Beside(t)
	e := start(t)
	out, err := bundle.Render(config.New())
	if err != nil {
		t.Fatal(err)
	}
	e.kubectlApply(out.Objects)
	before := e.stored(out.Objects)
	e.run()
	e.create(map[string]any{"deletionPolicy": "Delete", "managementPolicy": "Observe"})
	if diff := cmp.Diff(before, e.stored(out.Objects)); diff != "" {
		t.Errorf("Observe has changed something (-before +after):\n%s", diff)
	}
	e.patch(`{"spec": {"managementPolicy": "Enforce"}}`)
	e.reconciled(v1beta1.ReasonAsWanted)
	listed, err := install.Uninstall(t.Context(), e.cfg, install.UninstallOptions{DryRun: true, KeepDefinitions: true, Objects: []component.Object{}})
	if err != nil || listed.Count(install.Deleted) != len(out.Objects) {
		t.Errorf("the inventory lists %d of %d objects: %v", listed.Count(install.Deleted), len(out.Objects), err)
	}
	testutil.Eventually(t, bound, func() error {
		b, err := e.bundle()
		if err != nil {
			return err
		}
		for _, c := range b.Status.Components {
			if c.Image == "" {
				return fmt.Errorf("the status has no image of %s %s", c.Kind, c.Name)
			}
		}
		return nil
	})
	e.patch(`{"spec": {"scheduler": {"replicas": 3}}}`)
	e.reconciled(v1beta1.ReasonAsWanted)
	if d, err := e.scheduler(); err != nil || ptr.Deref(d.Spec.Replicas, 0) != 3 {
		t.Errorf("the change was not applied: %+v, %v", d.Spec.Replicas, err)
	}
	e.delete()
	e.gone()
	if left := e.versions(); len(left) > 0 {
		t.Errorf("workloads are left: %v", left)
	}
}

// kubectlApply creates the objects as `kubectl apply` does.
func (e *env) kubectlApply(objects []component.Object) {
	e.Helper()
	dyn := dynamic.NewForConfigOrDie(e.cfg)
	for _, o := range objects {
		u, err := bundle.Manifest(o)
		if err != nil {
			e.Fatal(err)
		}
		text, err := json.Marshal(u.Object)
		if err != nil {
			e.Fatal(err)
		}
		u.SetAnnotations(map[string]string{corev1.LastAppliedConfigAnnotation: string(text)})
		resource, _ := meta.UnsafeGuessKindToResource(u.GroupVersionKind())
		if _, err := dyn.Resource(resource).Namespace(u.GetNamespace()).Create(e.Context(), u, metav1.CreateOptions{FieldManager: "kubectl-client-side-apply"}); err != nil {
			e.Fatal(err)
		}
	}
}
