// SPDX-License-Identifier: Apache-2.0

package tunnelreach

import (
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"

	"github.com/fairlead-dev/fairlead/pkg/scheduler/pluginargs"
)

func object(kind, name string, fields map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: fields}
	o.SetKind(kind)
	o.SetName(name)
	return o
}

func serviceRef(name string) map[string]any {
	return map[string]any{"namespace": "default", "name": name}
}

// sources name Service "hook" in each way that makes the API server call it.
func sources() map[string]any {
	client := admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Namespace: "default", Name: "hook"}}
	return map[string]any{
		"mutating webhook": &admissionregistrationv1.MutatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "x"}, Webhooks: []admissionregistrationv1.MutatingWebhook{{}, {ClientConfig: client}}},
		"validating webhook": &admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "x"}, Webhooks: []admissionregistrationv1.ValidatingWebhook{{ClientConfig: client}}},
		"APIService": object("APIService", "x", map[string]any{"spec": map[string]any{"service": serviceRef("hook")}}),
		"CRD conversion": object("CustomResourceDefinition", "x", map[string]any{"spec": map[string]any{
			"versions":   []any{map[string]any{"schema": "large"}},
			"conversion": map[string]any{"webhook": map[string]any{"clientConfig": map[string]any{"service": serviceRef("hook")}}},
		}}),
	}
}

// TestAutomatic: a pod behind a Service that the API server calls must be reached, as long as it is named.
func TestAutomatic(t *testing.T) {
	for name, source := range sources() {
		t.Run(name, func(t *testing.T) {
			factory := informers.NewSharedInformerFactory(fake.NewClientset(
				&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "hook", Namespace: "default"}, Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "hook"}}},
				&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "all", Namespace: "default"}},
			), 0)
			s := newServices(factory.Core().V1().Services().Lister())
			factory.Start(t.Context().Done())
			factory.WaitForCacheSync(t.Context().Done())
			p := &Plugin{args: pluginargs.TunnelReachArgs{}, services: s}

			elsewhere, others := pod(""), pod("")
			elsewhere.Namespace, others.Labels = "elsewhere", map[string]string{"app": "other"}
			if p.mustReach(pod("")) {
				t.Error("before it is named")
			}
			s.set(source, false)
			s.set(source, false) // an update does not count twice
			if !p.mustReach(pod("")) || p.mustReach(pod("false")) || p.mustReach(elsewhere) || p.mustReach(others) {
				t.Errorf("selected %t, opted out %t, elsewhere %t, others %t", p.mustReach(pod("")), p.mustReach(pod("false")), p.mustReach(elsewhere), p.mustReach(others))
			}
			s.set(cache.DeletedFinalStateUnknown{Obj: source}, true)
			if p.mustReach(pod("")) {
				t.Error("after it is not named any more")
			}
		})
	}
}

// TestServiceWithoutSelector selects nothing, although an empty selector matches everything.
func TestServiceWithoutSelector(t *testing.T) {
	factory := informers.NewSharedInformerFactory(fake.NewClientset(
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "hook", Namespace: "default"}}), 0)
	s := newServices(factory.Core().V1().Services().Lister())
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
	s.set(sources()["APIService"], false)
	if s.selects(pod("")) {
		t.Error("selected")
	}
}

// TestTransform: of a CRD only the requested path is kept, and it is kept completely.
func TestTransform(t *testing.T) {
	full := sources()["CRD conversion"].(*unstructured.Unstructured)
	full.SetResourceVersion("7")
	for resource, path := range dynamicSources {
		if resource.Resource != "customresourcedefinitions" {
			continue
		}
		small, err := only(path)(full)
		if err != nil {
			t.Fatal(err)
		}
		o := small.(*unstructured.Unstructured)
		if _, kept, _ := unstructured.NestedSlice(o.Object, "spec", "versions"); kept || o.GetResourceVersion() != "7" {
			t.Errorf("kept %v", o.Object)
		}
		key, refs := references(o)
		if key != "CustomResourceDefinition/x" || len(refs) != 1 || refs[0].String() != "default/hook" {
			t.Errorf("%s: %v", key, refs)
		}
	}
}
