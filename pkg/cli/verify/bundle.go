// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/check"
)

// sameBundle refuses a --filename that differs from what the cluster was made with:
// verify derives where the parts are and how to stop them from the bundle alone.
func (o *Options) sameBundle(env *check.Env) error {
	if o.Filename == "" || env.Bundle == nil {
		return nil
	}
	field, asked, has, err := firstDifference(o.bundle, env.Bundle)
	if err != nil || field == "" {
		return err
	}
	return check.WithHint(fmt.Errorf("--filename %s: %s is %s there, but %s in the bundle of cluster %s", o.Filename, field, asked, has, env.Cluster),
		"remove --filename, because verify knows the bundle of this cluster; to verify a scheduler that you installed later, use --scheduler-name and --lease")
}

// firstDifference is the first field, by its name in a file, in which two bundles
// differ, and what they have there; empty if they are equal.
func firstDifference(a, b *v1alpha1.Bundle) (field, inA, inB string, err error) {
	var trees [2]any
	for i, v := range []*v1alpha1.Bundle{a, b} {
		data, err := bundle.Encode(v)
		if err != nil {
			return "", "", "", err
		}
		if err := yaml.Unmarshal(data, &trees[i]); err != nil {
			return "", "", "", err
		}
	}
	field, inA, inB = differs("", trees[0], trees[1])
	return strings.TrimPrefix(field, "."), inA, inB, nil
}

func differs(field string, a, b any) (where, inA, inB string) {
	if al, bl := list(a), list(b); len(al) > 0 && len(al) == len(bl) {
		for i := range al {
			if where, inA, inB := differs(fmt.Sprintf("%s[%d]", field, i), al[i], bl[i]); where != "" {
				return where, inA, inB
			}
		}
		return "", "", ""
	}
	am, aok := a.(map[string]any)
	bm, bok := b.(map[string]any)
	if !aok || !bok {
		if inA, inB := text(a), text(b); inA != inB {
			return field, inA, inB
		}
		return "", "", ""
	}
	all := maps.Clone(am)
	maps.Copy(all, bm)
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if where, inA, inB := differs(field+"."+key, am[key], bm[key]); where != "" {
			return where, inA, inB
		}
	}
	return "", "", ""
}

func list(v any) []any {
	l, _ := v.([]any)
	return l
}

func text(v any) string {
	if v == nil {
		return "not set"
	}
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(data)
}
