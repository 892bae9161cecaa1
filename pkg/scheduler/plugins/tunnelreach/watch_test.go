// SPDX-License-Identifier: Apache-2.0

package tunnelreach

import (
	"context"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/fairlead-dev/fairlead/pkg/scheduler/pluginargs"
	"github.com/fairlead-dev/fairlead/pkg/scheduler/plugins/plugintest"
)

var (
	apiServices = schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}
	crds        = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
)

func dynamicClient() *dynamicfake.FakeDynamicClient {
	return dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{apiServices: "APIServiceList", crds: "CustomResourceDefinitionList"})
}

func service(selector map[string]string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "hook", Namespace: "default"}, Spec: corev1.ServiceSpec{Selector: selector}}
}

// watching is a cluster of a reached and another node, with Service hook and the plugin requiring agents.
func watching(t *testing.T, client dynamic.Interface) *plugintest.Cluster {
	t.Helper()
	nodes := []*corev1.Node{node("a", "1", corev1.ConditionTrue), node("b", "1", corev1.ConditionFalse)}
	return plugintest.NewWith(t, nodes, nil, []runtime.Object{service(map[string]string{"app": "hook"})}, plugintest.Plugin{
		Name: Name, Points: []string{"PreFilter", "Filter"},
		Factory: func(ctx context.Context, _ runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
			known, err := watchServices(ctx, h.SharedInformerFactory(), client)
			args := pluginargs.TunnelReachArgs{Mode: pluginargs.ReachRequire}
			args.Default()
			if err != nil {
				return nil, err
			}
			return newPlugin(ctx, args, h, known)
		},
	})
}

// says is what node b says to a pod behind Service hook.
func says(t *testing.T, c *plugintest.Cluster) string {
	t.Helper()
	said, _ := c.Filter(t, pod(""))
	return said["b"]
}

// TestFollows: each kind of source makes a pod one that must be reached, and wakes the pod that it kept out when it goes.
func TestFollows(t *testing.T) {
	config := func() admissionregistrationv1.WebhookClientConfig {
		return admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Namespace: "default", Name: "hook"}}
	}
	dynamicSource := func(r schema.GroupVersionResource, o *unstructured.Unstructured) (func(c *plugintest.Cluster, d dynamic.Interface) error, func(c *plugintest.Cluster, d dynamic.Interface) error) {
		o.SetAPIVersion(r.GroupVersion().String())
		return func(_ *plugintest.Cluster, d dynamic.Interface) error {
				_, err := d.Resource(r).Create(t.Context(), o, metav1.CreateOptions{})
				return err
			}, func(_ *plugintest.Cluster, d dynamic.Interface) error {
				return d.Resource(r).Delete(t.Context(), o.GetName(), metav1.DeleteOptions{})
			}
	}
	mutating := func(c *plugintest.Cluster, _ dynamic.Interface) error {
		_, err := c.Client.AdmissionregistrationV1().MutatingWebhookConfigurations().Create(t.Context(), &admissionregistrationv1.MutatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "x"}, Webhooks: []admissionregistrationv1.MutatingWebhook{{ClientConfig: config()}}}, metav1.CreateOptions{})
		return err
	}
	all := sources()
	addAPI, removeAPI := dynamicSource(apiServices, all["APIService"].(*unstructured.Unstructured))
	addCRD, removeCRD := dynamicSource(crds, all["CRD conversion"].(*unstructured.Unstructured))
	for name, tc := range map[string]struct {
		add, remove func(c *plugintest.Cluster, d dynamic.Interface) error
	}{
		"mutating webhook": {mutating, func(c *plugintest.Cluster, _ dynamic.Interface) error {
			return c.Client.AdmissionregistrationV1().MutatingWebhookConfigurations().Delete(t.Context(), "x", metav1.DeleteOptions{})
		}},
		"validating webhook": {func(c *plugintest.Cluster, _ dynamic.Interface) error {
			_, err := c.Client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(t.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{
				ObjectMeta: metav1.ObjectMeta{Name: "x"}, Webhooks: []admissionregistrationv1.ValidatingWebhook{{ClientConfig: config()}}}, metav1.CreateOptions{})
			return err
		}, func(c *plugintest.Cluster, _ dynamic.Interface) error {
			return c.Client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Delete(t.Context(), "x", metav1.DeleteOptions{})
		}},
		"APIService":     {addAPI, removeAPI},
		"CRD conversion": {addCRD, removeCRD},
		"Service is deleted": {mutating, func(c *plugintest.Cluster, _ dynamic.Interface) error {
			return c.Client.CoreV1().Services("default").Delete(t.Context(), "hook", metav1.DeleteOptions{})
		}},
		"Service selects others": {mutating, func(c *plugintest.Cluster, _ dynamic.Interface) error {
			_, err := c.Client.CoreV1().Services("default").Update(t.Context(), service(map[string]string{"app": "other"}), metav1.UpdateOptions{})
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			d := dynamicClient()
			c := watching(t, d)
			plugintest.Eventually(t, "the sources to be known", func() bool { return says(t, c) == "" })
			if err := tc.add(c, d); err != nil {
				t.Fatal(err)
			}
			plugintest.Eventually(t, "the pod to be refused", func() bool { return strings.Contains(says(t, c), refused) })
			before := len(c.Activated())
			if err := tc.remove(c, d); err != nil {
				t.Fatal(err)
			}
			plugintest.Eventually(t, "the pod to be tried again", func() bool { return slices.Contains(c.Activated()[before:], "pod") })
			plugintest.Eventually(t, "the pod to fit", func() bool { return says(t, c) == "" })
		})
	}
}

// TestWaitsForSources: a pod behind a Service is held until it is known whether the API server calls that; others are not.
func TestWaitsForSources(t *testing.T) {
	d, wait := dynamicClient(), make(chan struct{})
	d.PrependReactor("list", "customresourcedefinitions", func(clienttesting.Action) (bool, runtime.Object, error) {
		<-wait
		return false, nil, nil
	})
	c := watching(t, d)
	if said, state := c.Filter(t, pod("")); said["b"] != notKnown || !state.ShouldSkipAllPostFilterPlugins() {
		t.Errorf("behind a Service: %q, keeps its nomination: %t", said["b"], state.ShouldSkipAllPostFilterPlugins())
	}
	for label, p := range map[string]*corev1.Pod{"opted out": pod("false"), "behind none": pod("")} {
		if label == "behind none" {
			p.Labels = map[string]string{"app": "other"}
		}
		if said, _ := c.Filter(t, p); said["b"] != "" {
			t.Errorf("%s: %q", label, said["b"])
		}
	}
	if said, _ := c.Filter(t, pod("true")); !strings.Contains(said["b"], refused) {
		t.Errorf("labeled: %q", said["b"])
	}
	close(wait)
	plugintest.Eventually(t, "the pod to be tried again", func() bool { return slices.Contains(c.Activated(), "pod") })
	if got := says(t, c); got != "" {
		t.Errorf("afterwards: %q", got)
	}
}

// TestPatience: if a watch is not established, the wait ends after a while and the waiting pods are activated.
func TestPatience(t *testing.T) {
	d, never := dynamicClient(), make(chan struct{})
	t.Cleanup(func() { close(never) })
	d.PrependReactor("list", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		<-never
		return false, nil, nil
	})
	c := watching(t, d)
	if got := says(t, c); got != notKnown {
		t.Fatalf("says %q", got)
	}
	c.Plugin.(*Plugin).losePatience()
	if got := says(t, c); got != "" || !slices.Contains(c.Activated(), "pod") {
		t.Errorf("says %q, activated %v", got, c.Activated())
	}
}

// TestChangedMeanwhile: a change between the decision and its record activates the pod at once.
func TestChangedMeanwhile(t *testing.T) {
	for name, tc := range map[string]struct {
		changes int
		want    bool
	}{"changed": {1, true}, "unchanged": {0, false}} {
		t.Run(name, func(t *testing.T) {
			woken := false
			w := waiting{activate: func(map[string]*corev1.Pod) { woken = true }}
			seen := w.version.Load()
			for range tc.changes {
				w.changed()
			}
			if w.add(pod(""), seen); woken != tc.want {
				t.Errorf("woken: %t", woken)
			}
		})
	}
}

// TestShared: the profiles of a scheduler share their watches, and each profile is notified of changes.
func TestShared(t *testing.T) {
	c := plugintest.New(t, Name, New, "", nil, nil, "PreFilter")
	first := c.Plugin.(*Plugin)
	other, err := New(t.Context(), nil, c.Framework)
	if err != nil {
		t.Fatal(err)
	}
	second := other.(*Plugin)
	if first.services == nil || first.services != second.services {
		t.Fatal("two profiles watch the same twice")
	}
	first.services.set(sources()["APIService"], false)
	if first.waiting.version.Load() != 1 || second.waiting.version.Load() != 1 {
		t.Errorf("told %d and %d times", first.waiting.version.Load(), second.waiting.version.Load())
	}
	first.services.set(sources()["APIService"], false)
	if n := first.waiting.version.Load(); n != 1 {
		t.Errorf("notified although nothing changed: %d", n)
	}
}
