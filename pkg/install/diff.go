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
)

// Difference is what Apply would change of one object.
type Difference struct {
	Ref    `json:",inline"`
	Action Action `json:"action"`
	// Diff is a unified diff from the cluster to the bundle, in YAML. The values of
	// Secrets are masked.
	Diff string `json:"diff"`
}

// Comparison is what Apply would change, and what would keep it from doing so.
type Comparison struct {
	Differences []Difference `json:"differences"`
	Problems    []Problem    `json:"problems,omitempty"`
	Warnings    []string     `json:"warnings,omitempty"`
}

// Diff compares the cluster behind cfg with the objects. The API server says what
// each would become, so that defaults and what others own make no difference.
// Objects that Apply would prune are among the differences. It changes nothing.
func Diff(ctx context.Context, cfg *rest.Config, objects []component.Object) (*Comparison, error) {
	manifests, err := sorted(objects)
	if err != nil {
		return nil, err
	}
	c, err := newClient(cfg)
	if err != nil {
		return nil, err
	}
	inv, err := c.readInventory(ctx)
	if err != nil {
		return nil, err
	}
	peaceful, err := c.makePlan(ctx, manifests, inv, false, false)
	if err != nil {
		return nil, err
	}
	// What conflicts is different, too, and only force says how.
	forced, err := c.makePlan(ctx, manifests, inv, true, true)
	if err != nil {
		return nil, err
	}
	out := &Comparison{Differences: []Difference{}, Problems: union(peaceful.problems, forced.problems, sameProblem), Warnings: c.warnings.list()}
	for _, ch := range append(forced.changes, forced.prunes...) {
		if ch.action == Unchanged || ch.action != Deleted && ch.merged == nil {
			continue
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

// text is "" for an object that is not there.
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

// mask hides the values of a Secret, and still shows which ones differ.
func mask(live, merged *unstructured.Unstructured) (a, b *unstructured.Unstructured) {
	a, b = masked(live, merged, "before"), masked(merged, live, "after")
	return a, b
}

func masked(u, other *unstructured.Unstructured, when string) *unstructured.Unstructured {
	if u == nil || u.GetKind() != "Secret" {
		return u
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
