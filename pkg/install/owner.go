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

// kubectlManagers are under what client-side kubectl writes. Their fields would
// stay when the bundle drops them, unless they are handed over.
var kubectlManagers = sets.New("kubectl-client-side-apply", "kubectl-create")

// applied tells whether the API server recorded that fairlead has applied the
// object. An update under that name, which is also what client-go calls a program
// named fairlead by default, is no application.
func applied(fields []metav1.ManagedFieldsEntry) bool {
	return slices.ContainsFunc(fields, func(e metav1.ManagedFieldsEntry) bool {
		return e.Manager == FieldManager && e.Operation == metav1.ManagedFieldsOperationApply && e.Subresource == ""
	})
}

// ours tells whether fairlead made or took over a live object. The UID counts for
// one whose managed fields were stripped.
func ours(live metav1.Object, e Entry) bool {
	return applied(live.GetManagedFields()) || e.UID != "" && e.UID == live.GetUID()
}

// foreignOwner names who else looks after an object, so that taking it over would
// start a fight; "" if nobody.
func foreignOwner(live *unstructured.Unstructured) string {
	if owner := metav1.GetControllerOf(live); owner != nil {
		return fmt.Sprintf("it belongs to %s %s", owner.Kind, owner.Name)
	}
	if release := live.GetAnnotations()["meta.helm.sh/release-name"]; release != "" {
		return fmt.Sprintf("it belongs to the Helm release %s", release)
	}
	return ""
}

// managers lists who has written to an object.
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

// describeManager adds how and when a manager wrote last.
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

// handover is the JSON patch by which what kubectl has applied becomes applied by
// fairlead; nil if kubectl has not.
func handover(live *unstructured.Unstructured) ([]byte, error) {
	if !slices.ContainsFunc(live.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool { return kubectlManagers.Has(e.Manager) }) {
		return nil, nil
	}
	patch, err := csaupgrade.UpgradeManagedFieldsPatch(live, kubectlManagers, FieldManager)
	if err != nil {
		return nil, fmt.Errorf("take over %s from kubectl: %w", RefOf(live), err)
	}
	return patch, nil
}

// kubectlDiffers is the first field in which what kubectl has applied differs from
// what is wanted, "" if none does or kubectl has applied nothing. A dry run does not
// tell of fields that the bundle lacks: they go only when fairlead has taken over.
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
		if fmt.Sprint(a) == fmt.Sprint(b) { // numbers of JSON are of several types
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

// valueAt reads the field of a path such as .spec.template.spec.containers[name="x"].image.
func valueAt(u *unstructured.Unstructured, path string) string {
	if u == nil {
		return "absent"
	}
	var v any = u.Object
	for _, step := range splitPath(path) {
		v = stepInto(v, step)
	}
	if v == nil {
		return "absent"
	}
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(data)
}

// splitPath splits a field path at dots and before brackets, not inside of them.
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

// stepInto is nil for what is not there, or a list that cannot be looked into.
func stepInto(v any, step string) any {
	if m, ok := v.(map[string]any); ok {
		return m[step]
	}
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

// matches tells whether m has all keys of a path's step, each as name="value".
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
