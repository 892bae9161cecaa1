// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"fmt"

	"github.com/pmezard/go-difflib/difflib"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/internal/redact"
)

// Difference is what Apply would change in one object.
type Difference struct {
	Ref    `json:",inline"`
	Action Action `json:"action"`
	// Diff is a unified diff from the cluster to the bundle, in YAML. The values of
	// Secrets are masked, and so are keys and tokens in other objects.
	Diff string `json:"diff"`
}

// Comparison is what Apply would change, and the problems that would block it.
type Comparison struct {
	Differences []Difference `json:"differences"`
	Problems    []Problem    `json:"problems,omitempty"`
	Warnings    []string     `json:"warnings,omitempty"`
	// Adoptions counts the objects that Apply would adopt, with and without a difference: it lists them in the inventory
	// and owns their fields from then on.
	Adoptions int `json:"-"`
}

// Diff compares the cluster behind cfg with the objects. The API server returns what each object would become, so
// defaults and fields of other owners make no difference. Objects that Apply would prune are among the differences. Diff
// changes nothing.
func Diff(ctx context.Context, cfg *rest.Config, objects []component.Object) (*Comparison, error) {
	return DiffOf(ctx, cfg, Options{}, objects)
}

// DiffOf is Diff for what Apply would do with these options, of which it uses Party and Keep.
func DiffOf(ctx context.Context, cfg *rest.Config, o Options, objects []component.Object) (*Comparison, error) {
	manifests, err := sorted(objects)
	if err != nil {
		return nil, err
	}
	c, err := newClient(cfg, o.Party)
	if err != nil {
		return nil, err
	}
	c.keep, c.keepOthers = o.Keep, o.KeepOthers
	inv, err := c.readInventory(ctx)
	if err != nil {
		return nil, err
	}
	peaceful, err := c.makePlan(ctx, manifests, inv, false, false)
	if err != nil {
		return nil, err
	}
	// An object with conflicts differs as well. Only a forced dry run shows how.
	forced, err := c.makePlan(ctx, manifests, inv, true, true)
	if err != nil {
		return nil, err
	}
	out := &Comparison{Differences: []Difference{}, Problems: union(peaceful.problems, forced.problems, sameProblem), Warnings: c.warnings.list()}
	for _, ch := range append(forced.changes, forced.prunes...) {
		if ch.action == Unchanged || ch.action != Deleted && ch.merged == nil {
			continue
		}
		if ch.action == Adopted {
			out.Adoptions++
		}
		d, err := difference(ch)
		if err != nil {
			return nil, err
		}
		if d.Diff != "" {
			out.Differences = append(out.Differences, d)
		}
	}
	return out, nil
}

func sameProblem(a, b Problem) bool { return a.Object == b.Object }

func difference(ch change) (Difference, error) {
	live, merged := mask(ch.live, ch.merged)
	a, err := text(live)
	if err != nil {
		return Difference{}, err
	}
	b, err := text(merged)
	if err != nil {
		return Difference{}, err
	}
	diff, err := difflib.GetUnifiedDiffString(difflib.UnifiedDiff{
		A: difflib.SplitLines(a), B: difflib.SplitLines(b), FromFile: "cluster: " + ch.String(), ToFile: "bundle: " + ch.String(), Context: 3,
	})
	if err != nil {
		return Difference{}, fmt.Errorf("compare %s: %w", ch.Ref, err)
	}
	return Difference{Ref: ch.Ref, Action: ch.action, Diff: diff}, nil
}

// text returns the YAML of an object, or "" if the object does not exist.
func text(u *unstructured.Unstructured) (string, error) {
	if u == nil {
		return "", nil
	}
	data, err := yaml.Marshal(essence(u, false))
	if err != nil {
		return "", fmt.Errorf("encode %s: %w", RefOf(u), err)
	}
	return string(data), nil
}

// mask hides the values of a Secret, and in any other object each text that holds a credential. It still shows which ones
// differ.
func mask(live, merged *unstructured.Unstructured) (a, b *unstructured.Unstructured) {
	a, b = masked(live, merged, "before"), masked(merged, live, "after")
	return a, b
}

func masked(u, other *unstructured.Unstructured, when string) *unstructured.Unstructured {
	if u == nil {
		return u
	}
	if u.GetKind() != "Secret" {
		return maskedTexts(u, other, when)
	}
	out := u.DeepCopy()
	for _, field := range []string{"data", "stringData"} {
		values, _, err := unstructured.NestedMap(out.Object, field)
		if err != nil || values == nil {
			continue
		}
		for key, value := range values {
			values[key] = "***"
			if other != nil {
				if was, found, err := unstructured.NestedFieldNoCopy(other.Object, field, key); err == nil && found && was != value {
					values[key] = "*** (" + when + ")"
				}
			}
		}
		_ = unstructured.SetNestedMap(out.Object, values, field)
	}
	if annotations := out.GetAnnotations(); annotations[corev1.LastAppliedConfigAnnotation] != "" {
		annotations[corev1.LastAppliedConfigAnnotation] = "***"
		out.SetAnnotations(annotations)
	}
	return out
}

// maskedTexts hides each text of u that holds a credential, such as a key in a ConfigMap.
func maskedTexts(u, other *unstructured.Unstructured, when string) *unstructured.Unstructured {
	out := u.DeepCopy()
	var theirs any
	if other != nil {
		theirs = other.Object
	}
	if object, ok := maskedValue(out.Object, theirs, when).(map[string]any); ok {
		out.Object = object
	}
	return out
}

func maskedValue(value, other any, when string) any {
	switch v := value.(type) {
	case map[string]any:
		theirs, _ := other.(map[string]any)
		for key := range v {
			v[key] = maskedValue(v[key], theirs[key], when)
		}
		name, _ := v["name"].(string)
		if value, ok := v["value"].(string); ok && redact.IsName(name) { // an environment variable
			v["value"] = masking(value, theirs["value"], when)
		}
	case []any:
		theirs, _ := other.([]any)
		for i := range v {
			var their any
			if i < len(theirs) {
				their = theirs[i]
			}
			v[i] = maskedValue(v[i], their, when)
		}
	case string:
		if redact.IsSecret([]byte(v)) || redact.Text(v) != v {
			return masking(v, other, when)
		}
	}
	return value
}

// masking stands for a value, and tells whether the other side has another one.
func masking(value string, other any, when string) string {
	if other == nil || other == any(value) {
		return "***"
	}
	return "*** (" + when + ")"
}
