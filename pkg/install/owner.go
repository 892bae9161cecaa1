// SPDX-License-Identifier: Apache-2.0

package install

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/csaupgrade"
)

// kubectlManagers are the field managers of client-side kubectl. Their fields would
// stay after the bundle drops them, unless fairlead takes them over.
var kubectlManagers = sets.New("kubectl-client-side-apply", "kubectl-create")

// applied reports whether the API server has recorded that the party applied the
// object. An update under that name does not count: client-go uses the program's name
// as its default manager, so any program named fairlead updates under it.
func (p Party) applied(fields []metav1.ManagedFieldsEntry) bool {
	return slices.ContainsFunc(fields, func(e metav1.ManagedFieldsEntry) bool {
		return e.Manager == p.FieldManager() && e.Operation == metav1.ManagedFieldsOperationApply && e.Subresource == ""
	})
}

// ours reports whether this party created or adopted a live object. The UID
// identifies an object whose managed fields were stripped.
func (c *client) ours(live metav1.Object, e Entry) bool {
	return c.party.applied(live.GetManagedFields()) || e.UID != "" && e.UID == live.GetUID()
}

// foreignOwner describes the controller or Helm release that manages an object, which
// would fight with fairlead over it. It returns "" if there is none.
func foreignOwner(live *unstructured.Unstructured) string {
	if owner := metav1.GetControllerOf(live); owner != nil {
		return fmt.Sprintf("it belongs to %s %s", owner.Kind, owner.Name)
	}
	if release := live.GetAnnotations()["meta.helm.sh/release-name"]; release != "" {
		return fmt.Sprintf("it belongs to the Helm release %s", release)
	}
	return ""
}

// managers lists the field managers that have written to an object.
func managers(live metav1.Object) string {
	var names []string
	for _, e := range live.GetManagedFields() {
		if !slices.Contains(names, e.Manager) {
			names = append(names, e.Manager)
		}
	}
	if len(names) == 0 {
		return "unknown"
	}
	return strings.Join(names, ", ")
}

// describeManager adds to a manager's name how and when it last wrote.
func describeManager(live metav1.Object, name string) string {
	out := name
	if live == nil {
		return out
	}
	for _, e := range live.GetManagedFields() {
		if e.Manager != name {
			continue
		}
		how := string(e.Operation)
		if e.Subresource != "" {
			how += " of " + e.Subresource
		}
		if e.Time != nil {
			how += " at " + e.Time.UTC().Format(time.RFC3339)
		}
		out = fmt.Sprintf("%s (%s)", name, how)
	}
	return out
}

// handover returns the JSON patch that turns what kubectl has applied into fields
// that fairlead has applied, or nil if kubectl has applied nothing.
func handover(live *unstructured.Unstructured, manager string) ([]byte, error) {
	if !slices.ContainsFunc(live.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool { return kubectlManagers.Has(e.Manager) }) {
		return nil, nil
	}
	patch, err := csaupgrade.UpgradeManagedFieldsPatch(live, kubectlManagers, manager)
	if err != nil {
		return nil, fmt.Errorf("take over %s from kubectl: %w", RefOf(live), err)
	}
	return patch, nil
}

// kubectlDiffers returns the first field in which what kubectl has applied differs
// from what is wanted, or "" if there is no difference or kubectl has applied
// nothing. A dry run does not show fields that the bundle lacks: they are removed
// only when fairlead has taken over.
func kubectlDiffers(live, want *unstructured.Unstructured) (string, error) {
	text := live.GetAnnotations()[corev1.LastAppliedConfigAnnotation]
	if text == "" {
		return "", nil
	}
	var applied map[string]any
	if err := json.Unmarshal([]byte(text), &applied); err != nil {
		return "", fmt.Errorf("annotation %s of %s: %w", corev1.LastAppliedConfigAnnotation, RefOf(live), err)
	}
	// kubectl writes an empty map where the file has no annotations.
	if annotations, found, err := unstructured.NestedMap(applied, "metadata", "annotations"); err == nil && found && len(annotations) == 0 {
		unstructured.RemoveNestedField(applied, "metadata", "annotations")
	}
	return differs(applied, want.Object, ""), nil
}

func differs(a, b any, path string) string {
	am, aok := a.(map[string]any)
	bm, bok := b.(map[string]any)
	if !aok || !bok {
		if fmt.Sprint(a) == fmt.Sprint(b) { // JSON numbers decode to several types
			return ""
		}
		return path
	}
	for _, key := range slices.Sorted(maps.Keys(am)) {
		if found := differs(am[key], bm[key], path+"."+key); found != "" {
			return found
		}
	}
	for _, key := range slices.Sorted(maps.Keys(bm)) {
		if _, ok := am[key]; !ok {
			return path + "." + key
		}
	}
	return ""
}

// valueAt returns the field at a path such as
// .spec.template.spec.containers[name="x"].image.
func valueAt(u *unstructured.Unstructured, path string) string {
	if u == nil {
		return "absent"
	}
	return valueText(lookup(u.Object, splitPath(path)))
}

// lookup returns nil if there is no such field. A key can contain dots itself, like
// file names in a ConfigMap and prefixes of annotations, and the path does not quote
// them.
func lookup(v any, steps []string) any {
	if len(steps) == 0 {
		return v
	}
	m, ok := v.(map[string]any)
	if !ok {
		return lookup(stepInto(v, steps[0]), steps[1:])
	}
	for n := 1; n <= len(steps); n++ {
		value, there := m[strings.Join(steps[:n], ".")]
		if !there {
			continue
		}
		if found := lookup(value, steps[n:]); found != nil {
			return found
		}
	}
	return nil
}

// splitPath splits a field path at dots and before brackets, but not inside brackets.
func splitPath(path string) []string {
	var steps []string
	begin, inside := 0, false
	cut := func(end int) {
		if s := strings.TrimPrefix(path[begin:end], "."); s != "" {
			steps = append(steps, s)
		}
		begin = end
	}
	for i, r := range path {
		switch {
		case r == '[' && !inside:
			cut(i)
			inside = true
		case r == ']':
			inside = false
		case r == '.' && !inside:
			cut(i)
		}
	}
	cut(len(path))
	return steps
}

// stepInto returns nil if the step does not exist, or leads into a list by anything
// but its keys.
func stepInto(v any, step string) any {
	list, ok := v.([]any)
	if !ok || !strings.HasPrefix(step, "[") {
		return nil
	}
	keys := strings.Split(strings.Trim(step, "[]"), ",")
	for _, item := range list {
		if m, ok := item.(map[string]any); ok && matches(m, keys) {
			return item
		}
	}
	return nil
}

// matches reports whether m has all keys of a path's step, each as name="value".
func matches(m map[string]any, keys []string) bool {
	for _, k := range keys {
		name, want, ok := strings.Cut(k, "=")
		got, err := json.Marshal(m[name])
		if !ok || err != nil || string(got) != want {
			return false
		}
	}
	return true
}
