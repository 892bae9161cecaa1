package main

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// How templates are made: a bundle is rendered in which every field that has a
// value in the chart is a sentinel, something that occurs nowhere else. In the
// rendered objects sentinels become tokens, the objects become YAML, and the
// tokens become template expressions. What is there only under a condition is found
// by rendering a bundle without it. So objects are written down in one place, the
// bundle, and a test compares what Helm makes of the chart with what the bundle
// renders.

const chartDir = "deploy/helm/fairlead"

// Sentinels.
const (
	markNamespace = "fairlead-sentinel"
	markScheduler = "sentinel/fairlead-scheduler:v0"
	markAgent     = "sentinel/agent:v0"
	markReplicas  = 7919
	markKey       = "sentinel"
)

// sentinel is the bundle of sentinels; tolerations and the like name their part.
func sentinel() *v1alpha1.Bundle {
	resources := func(milli int64) *corev1.ResourceRequirements {
		return &corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(milli, resource.DecimalSI)}}
	}
	b := &v1alpha1.Bundle{Namespace: markNamespace}
	s, a := &b.Scheduler, &b.Konnectivity.Agent
	s.Image, a.Image = markScheduler, markAgent
	s.Replicas = ptr.To[int32](markReplicas)
	s.Resources, a.Resources = resources(7907), resources(7901)
	s.Tolerations, a.Tolerations = &v1alpha1.Tolerations{{Key: markKey}}, &v1alpha1.Tolerations{{Key: markKey}}
	s.NodeSelector, a.NodeSelector = map[string]string{markKey: markKey}, map[string]string{markKey: markKey}
	b.Konnectivity.LeaseCounting = ptr.To(true)
	return b
}

// condition is a value without which something is not rendered.
type condition struct {
	expr string
	off  func(*v1alpha1.Bundle)
}

var conditions = []condition{
	{".Values.scheduler.enabled", func(b *v1alpha1.Bundle) { b.Scheduler.Enabled = ptr.To(false) }},
	{".Values.konnectivity.enabled", func(b *v1alpha1.Bundle) { b.Konnectivity.Enabled = ptr.To(false) }},
	{leaseCounting, func(b *v1alpha1.Bundle) { b.Konnectivity.LeaseCounting = ptr.To(false) }},
	{"(not " + serverHost + ")", func(b *v1alpha1.Bundle) { b.Konnectivity.ServerHost = "elsewhere.example.com" }},
}

var (
	leaseCounting = optional(".Values.konnectivity", "leaseCounting")
	serverHost    = optional(".Values.konnectivity", "serverHost")
)

// optional is a value that is empty where null has taken it away. A plain reference
// to it would be an error in Helm's strict mode, in which the chart is tested.
func optional(section, name string) string { return fmt.Sprintf("(get %s %q)", section, name) }

// chart makes the files of the Helm chart.
func chart() (map[string][]byte, error) {
	all, err := manifests(sentinel())
	if err != nil {
		return nil, err
	}
	variants := map[string][]*unstructured.Unstructured{}
	for _, c := range conditions {
		b := sentinel()
		c.off(b)
		if variants[c.expr], err = manifests(b); err != nil {
			return nil, err
		}
	}
	stranger := sentinel()
	stranger.Scheduler.Image = "sentinel/kube-scheduler"
	strangers, err := manifests(stranger)
	if err != nil {
		return nil, err
	}
	files, err := chartMeta()
	if err != nil {
		return nil, err
	}
	for i, o := range all {
		if o.GetKind() == "Namespace" {
			continue // helm install --create-namespace
		}
		t := &templater{part: part(o, variants)}
		if twin := find(variants[leaseCounting], o); twin != nil {
			t.without = args(twin)
		}
		if o.GetKind() == "ConfigMap" {
			t.stranger = find(strangers, o)
		}
		text, err := t.template(o, needed(o, variants))
		if err != nil {
			return nil, err
		}
		if t.config != "" {
			files["templates/_config.tpl"] = []byte(t.config)
		}
		files[fmt.Sprintf("templates/%02d-%s-%s.yaml", i, strings.ToLower(o.GetKind()), strings.ReplaceAll(o.GetName(), ":", "-"))] = []byte(text)
	}
	return files, nil
}

func manifests(b *v1alpha1.Bundle) ([]*unstructured.Unstructured, error) {
	out, err := bundle.Render(b)
	if err != nil {
		return nil, err
	}
	var list []*unstructured.Unstructured
	for _, o := range out.Objects {
		u, err := bundle.Manifest(o)
		if err != nil {
			return nil, err
		}
		list = append(list, u)
	}
	return list, nil
}

func find(list []*unstructured.Unstructured, o *unstructured.Unstructured) *unstructured.Unstructured {
	i := slices.IndexFunc(list, func(x *unstructured.Unstructured) bool {
		return x.GetKind() == o.GetKind() && x.GetName() == o.GetName()
	})
	if i < 0 {
		return nil
	}
	return list[i]
}

// needed are the conditions under which an object is rendered.
func needed(o *unstructured.Unstructured, variants map[string][]*unstructured.Unstructured) []string {
	var out []string
	for _, c := range conditions {
		if find(variants[c.expr], o) == nil {
			out = append(out, c.expr)
		}
	}
	return out
}

// part is the section of the values to which an object belongs.
func part(o *unstructured.Unstructured, variants map[string][]*unstructured.Unstructured) string {
	if find(variants[".Values.scheduler.enabled"], o) == nil {
		return ".Values.scheduler"
	}
	return ".Values.konnectivity.agent"
}

// args are those of an object's one container; nil if it has none.
func args(o *unstructured.Unstructured) []any {
	containers, _, err := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
	if err != nil || len(containers) == 0 {
		return nil
	}
	container, _ := containers[0].(map[string]any)
	list, _ := container["args"].([]any)
	return list
}

// chartMeta are the files besides the objects.
func chartMeta() (map[string][]byte, error) {
	version := strings.TrimPrefix(v1alpha1.ImageTag, "v")
	meta, err := yaml.Marshal(map[string]any{
		"apiVersion": "v2", "name": "fairlead", "type": "application", "version": version, "appVersion": version,
		"description": "A second kube-scheduler and the agents of a Konnectivity tunnel", "kubeVersion": ">=1.36.0-0",
	})
	if err != nil {
		return nil, err
	}
	values, err := values()
	if err != nil {
		return nil, err
	}
	schema, err := schema()
	if err != nil {
		return nil, err
	}
	const head = "# Generated by `make manifests` from the typed bundle.\n"
	return map[string][]byte{
		"Chart.yaml": append([]byte(head), meta...), "values.yaml": append([]byte(head), values...), "values.schema.json": schema, "templates/NOTES.txt": []byte(notes),
	}, nil
}

const notes = `Fairlead is installed in namespace {{ .Release.Namespace }}.
{{- if ne .Release.Namespace "kube-system" }}
Outside of kube-system the API server treats the scheduler's requests as low
priority, unless you add a FlowSchema.
{{- end }}
{{- if .Values.konnectivity.enabled }}
The control plane's half of the tunnel is not in this chart. On every control plane
node run "fairlead controlplane install".
{{- end }}
Prove that it works: fairlead verify
`
