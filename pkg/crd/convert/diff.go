// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// kind is what became of a field.
type kind int

const (
	lost kind = iota
	changed
	added
)

// difference is one field that is not the same.
type difference struct {
	kind          kind
	path          string
	before, after any
}

// text says what happened on the way to a version and back.
func (d difference) text(by string) string {
	switch d.kind {
	case lost:
		return fmt.Sprintf("%s is gone after a conversion to %s and back", short(d.before), by)
	case added:
		return fmt.Sprintf("%s appears after a conversion to %s and back", short(d.after), by)
	}
	return fmt.Sprintf("%s becomes %s after a conversion to %s and back", short(d.before), short(d.after), by)
}

func short(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	if len(text) > 80 {
		return string(text[:80]) + "..."
	}
	return string(text)
}

// diff compares two JSON objects field by field. Empty maps and lists are the same as none.
func diff(before, after map[string]any) []difference {
	var out []difference
	compareMaps("", before, after, &out)
	return out
}

func compareMaps(path string, before, after map[string]any, out *[]difference) {
	keys := slices.Concat(slices.Collect(maps.Keys(before)), slices.Collect(maps.Keys(after)))
	slices.Sort(keys)
	for _, k := range slices.Compact(keys) {
		b, inBefore := before[k]
		a, inAfter := after[k]
		p := strings.TrimPrefix(path+"."+k, ".")
		if strings.ContainsAny(k, "./") {
			p = path + "[" + k + "]"
		}
		switch {
		case inBefore && inAfter:
			compareValues(p, b, a, out)
		case inBefore && !empty(b):
			*out = append(*out, difference{kind: lost, path: p, before: b})
		case inAfter && !empty(a):
			*out = append(*out, difference{kind: added, path: p, after: a})
		}
	}
}

func compareValues(path string, before, after any, out *[]difference) {
	switch b := before.(type) {
	case map[string]any:
		if a, ok := after.(map[string]any); ok {
			compareMaps(path, b, a, out)
			return
		}
	case []any:
		a, ok := after.([]any)
		if !ok {
			break
		}
		for i := range max(len(a), len(b)) {
			p := fmt.Sprintf("%s[%d]", path, i)
			switch {
			case i >= len(a):
				*out = append(*out, difference{kind: lost, path: p, before: b[i]})
			case i >= len(b):
				*out = append(*out, difference{kind: added, path: p, after: a[i]})
			default:
				compareValues(p, b[i], a[i], out)
			}
		}
		return
	}
	if !reflect.DeepEqual(before, after) && !(empty(before) && empty(after)) {
		*out = append(*out, difference{kind: changed, path: path, before: before, after: after})
	}
}

func empty(v any) bool {
	switch t := v.(type) {
	case nil:
		return true
	case map[string]any:
		return len(t) == 0
	case []any:
		return len(t) == 0
	}
	return false
}
