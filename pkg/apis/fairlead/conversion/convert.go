// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validation"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// The group and its versions.
const (
	Group    = "fairlead.dev"
	V1alpha1 = Group + "/v1alpha1"
	V1beta1  = Group + "/v1beta1"
)

// WebhookPath is where the API server calls the webhook that converts, whatever serves it.
const WebhookPath = "/convert"

// Annotations that keep what the object's version cannot express.
const (
	// LostV1alpha1 holds fields as a v1alpha1 object had them.
	LostV1alpha1 = Group + "/v1alpha1-fields"
	// LostV1beta1 holds fields as a v1beta1 object had them.
	LostV1beta1 = Group + "/v1beta1-fields"
)

var annotationOf = map[string]string{V1alpha1: LostV1alpha1, V1beta1: LostV1beta1}

// Versions returns the apiVersions of a kind that Convert knows, nil for other kinds.
func Versions(kind string) []string {
	if _, ok := kinds[kind]; !ok {
		return nil
	}
	return []string{V1alpha1, V1beta1}
}

// Convert changes an object, which is decoded JSON with int64 and float64 as numbers, to
// an apiVersion. It fails only for a kind or a version that it does not know, and then
// leaves the object as it is.
func Convert(object map[string]any, apiVersion string) error {
	kind, _ := object["kind"].(string)
	from, _ := object["apiVersion"].(string)
	rules, ok := kinds[kind]
	if !ok {
		return fmt.Errorf("kind %q is not converted: it has one version", kind)
	}
	for _, version := range []string{from, apiVersion} {
		if annotationOf[version] == "" {
			return fmt.Errorf("apiVersion %q of kind %s is unknown: use %s or %s", version, kind, V1alpha1, V1beta1)
		}
	}
	if from == apiVersion {
		return nil
	}
	object["apiVersion"] = apiVersion
	// What the target's own fields were before they were converted to from.
	originals := takeAnnotation(object, annotationOf[apiVersion])
	lost := takeAnnotation(object, annotationOf[from])
	if lost == nil {
		lost = map[string]any{}
	}
	clear(lost) // the object has its own version's fields, so older copies are void
	for _, r := range rules {
		r.apply(object, apiVersion == V1beta1, originals, lost)
	}
	if len(lost) > 0 {
		setAnnotation(object, annotationOf[from], lost)
	}
	return nil
}

// rule moves fields of one parent.
type rule struct {
	parent string // dotted path
	// old and new are the names of the fields in v1alpha1 and v1beta1.
	old, new []string
	// up and down convert the fields that are there. They return only what they can
	// express, and never change what they get.
	up, down func(map[string]any) map[string]any
	// oldType and newType tell whether a value is of a field's type in v1alpha1 and v1beta1.
	oldType, newType func(name string, value any) bool
}

func (r rule) apply(object map[string]any, up bool, originals, lost map[string]any) {
	parent := nested(object, strings.Split(r.parent, "."))
	if parent == nil {
		return
	}
	source, target, convert, back, typed := r.old, r.new, r.up, r.down, r.newType
	if !up {
		source, target, convert, back, typed = r.new, r.old, r.down, r.up, r.oldType
	}
	key := r.parent + "." + r.new[0]
	has := pick(parent, source)
	becomes := convert(has)
	if original, ok := originals[key].(map[string]any); ok && fits(original, target, typed) && equal(convertOrEmpty(back, original), has) {
		becomes = original
	} else if !equal(convertOrEmpty(back, becomes), has) {
		lost[key] = has
	}
	for _, name := range source {
		delete(parent, name)
	}
	maps.Copy(parent, becomes)
}

func convertOrEmpty(convert func(map[string]any) map[string]any, fields map[string]any) map[string]any {
	if len(fields) == 0 {
		return map[string]any{}
	}
	return convert(fields)
}

func equal(a, b map[string]any) bool {
	return len(a) == 0 && len(b) == 0 || reflect.DeepEqual(a, b)
}

// fits reports whether an original may be restored. The API server checks an object in the version
// of the request only, and clients write annotations: a value of another type would be stored
// unchecked, and no client could decode the object.
func fits(original map[string]any, names []string, typed func(name string, value any) bool) bool {
	for name, value := range original {
		if !slices.Contains(names, name) || !typed(name, value) {
			return false
		}
	}
	return true
}

func pick(parent map[string]any, names []string) map[string]any {
	picked := map[string]any{}
	for _, name := range names {
		if v, ok := parent[name]; ok {
			picked[name] = v
		}
	}
	return picked
}

// nested returns the object at a path, nil if there is none.
func nested(object map[string]any, path []string) map[string]any {
	for _, name := range path {
		next, ok := object[name].(map[string]any)
		if !ok {
			return nil
		}
		object = next
	}
	return object
}

// takeAnnotation removes an annotation that Convert has written and returns what it holds.
func takeAnnotation(object map[string]any, name string) map[string]any {
	metadata := nested(object, []string{"metadata"})
	annotations := nested(metadata, []string{"annotations"})
	text, ok := annotations[name].(string)
	if !ok {
		return nil
	}
	delete(annotations, name)
	if len(annotations) == 0 {
		delete(metadata, "annotations")
	}
	var fields map[string]any
	if err := utiljson.Unmarshal([]byte(text), &fields); err != nil {
		return nil // not ours
	}
	return fields
}

// setAnnotation adds an annotation if the object has room for it: the API server refuses what a webhook
// returns with more, and no client could read the object, nor a list with it.
func setAnnotation(object map[string]any, name string, fields map[string]any) {
	text, err := utiljson.Marshal(fields)
	if err != nil {
		return // JSON that was decoded can be encoded
	}
	size := len(name) + len(text)
	for key, value := range nested(object, []string{"metadata", "annotations"}) {
		text, _ := value.(string)
		size += len(key) + len(text)
	}
	if size > validation.TotalAnnotationSizeLimitB {
		return
	}
	metadata := child(object, "metadata")
	child(metadata, "annotations")[name] = string(text)
}

func child(parent map[string]any, name string) map[string]any {
	m, ok := parent[name].(map[string]any)
	if !ok {
		m = map[string]any{}
		parent[name] = m
	}
	return m
}
