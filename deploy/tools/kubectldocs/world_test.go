// SPDX-License-Identifier: Apache-2.0

package kubectldocs

import (
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/crds"
	tunnelv1alpha1 "github.com/fairlead-dev/fairlead/pkg/apis/tunnel/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/bundle/operator"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"
)

// world is what a cluster with every part of Fairlead has.
type world struct {
	// kinds are the resources by all of their names: plural, singular, short, and with their group.
	kinds map[string]string
	// names are "RESOURCE NAMESPACE/NAME" of objects.
	names map[string]bool
	// labels are those of objects and of the Pods that they make.
	labels []labeled
	spaces map[string]bool
}

// labeled are the labels of an object.
type labeled struct {
	resource, space string
	labels.Set
}

// shortNames are those of Kubernetes' own resources that the documentation may use.
var shortNames = map[string]string{
	"po": "pods", "no": "nodes", "ns": "namespaces", "svc": "services", "cm": "configmaps", "sa": "serviceaccounts", "ds": "daemonsets", "deploy": "deployments", "rs": "replicasets",
	"csr": "certificatesigningrequests", "ev": "events", "pdb": "poddisruptionbudgets", "netpol": "networkpolicies", "crd": "customresourcedefinitions", "crds": "customresourcedefinitions",
}

// others are objects that nothing renders: those of kubeadm, those that programs write, and that of the bundle in an example.
var others = []string{
	"configmaps kube-system/kubeadm-config", "leases kube-system/my-scheduler", "secrets kube-system/fairlead-gateway-tls",
	"secrets " + operator.DefaultNamespace + "/" + operator.WebhookSecret, "deployments kube-system/batch-scheduler",
	"clusterroles /system:auth-delegator", "clusterroles /system:monitoring",
}

// examples are namespaces of readers.
var examples = []string{"default", "monitoring", "shop", "team-a"}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{kinds: map[string]string{}, names: map[string]bool{}, spaces: map[string]bool{"kube-system": true, operator.DefaultNamespace: true, v1alpha1.DefaultLeaseNamespace: true}}
	w.addKinds(t)
	// Servers publish their Leases with lease counting.
	w.labels = append(w.labels, labeled{"leases", v1alpha1.DefaultLeaseNamespace, labels.Set{"k8s-app": konnectivity.ServerName}})
	on := ptr.To(true)
	out, err := bundle.Render(&v1alpha1.Bundle{Gateway: v1alpha1.Gateway{Enabled: on}, TunnelAPI: v1alpha1.TunnelAPI{Enabled: on, Connect: on}})
	if err != nil {
		t.Fatal(err)
	}
	more, err := operator.Objects(operator.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range append(out.Objects, more...) {
		w.add(t, o)
	}
	for _, f := range out.HostFiles {
		var pod corev1.Pod
		if strings.HasSuffix(f.Path, ".yaml") && yaml.Unmarshal(f.Data, &pod) == nil && pod.Kind == "Pod" {
			w.labels = append(w.labels, labeled{"pods", pod.Namespace, pod.Labels})
		}
	}
	for _, o := range others {
		w.names[o] = true
	}
	for _, space := range examples {
		w.spaces[space] = true
	}
	return w
}

func (w *world) add(t *testing.T, o component.Object) {
	t.Helper()
	u, err := bundle.Manifest(o)
	if err != nil {
		t.Fatal(err)
	}
	plural, _ := meta.UnsafeGuessKindToResource(u.GroupVersionKind())
	w.names[plural.Resource+" "+u.GetNamespace()+"/"+u.GetName()] = true
	w.labels = append(w.labels, labeled{plural.Resource, u.GetNamespace(), u.GetLabels()})
	if set, ok, err := unstructured.NestedStringMap(u.Object, "spec", "template", "metadata", "labels"); err == nil && ok {
		w.labels = append(w.labels, labeled{"pods", u.GetNamespace(), set})
	}
}

func (w *world) addKinds(t *testing.T) {
	t.Helper()
	all := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, tunnelv1alpha1.AddToScheme} {
		if err := add(all); err != nil {
			t.Fatal(err)
		}
	}
	for gvk := range all.AllKnownTypes() {
		if o, err := all.New(gvk); err != nil || strings.HasSuffix(gvk.Kind, "List") {
			continue
		} else if _, err := meta.Accessor(o); err != nil {
			continue
		}
		plural, singular := meta.UnsafeGuessKindToResource(gvk)
		for _, name := range []string{plural.Resource, singular.Resource} {
			w.kinds[name], w.kinds[strings.TrimSuffix(name+"."+gvk.Group, ".")] = plural.Resource, plural.Resource
		}
	}
	for _, name := range []string{"customresourcedefinition", "apiservice"} {
		w.kinds[name], w.kinds[name+"s"] = name+"s", name+"s"
	}
	for short, name := range shortNames {
		w.kinds[short] = name
	}
	definitions, err := crds.All()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range definitions {
		names := d.Spec.Names
		for _, name := range append(append([]string{names.Plural, names.Singular, names.Plural + "." + d.Spec.Group}, names.ShortNames...), names.Categories...) {
			w.kinds[name] = names.Plural
		}
	}
}

// selects reports whether a selector matches an object of a resource in a namespace. Either may be empty, for any.
func (w *world) selects(s labels.Selector, resource, space string) bool {
	for _, of := range w.labels {
		if (resource == "" || of.resource == resource) && (space == "" || of.space == space) && s.Matches(of.Set) {
			return true
		}
	}
	return false
}
