// SPDX-License-Identifier: Apache-2.0

package install

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pmezard/go-difflib/difflib"
)

// maxFields bounds the number of fields listed for an object that does not
// match the bundle.
const maxFields = 10

// fieldDifferences lists the fields in which two states of an object differ.
func fieldDifferences(live, wanted any, path string) []Conflict {
	lm, lok := live.(map[string]any)
	wm, wok := wanted.(map[string]any)
	if !lok || !wok {
		if fmt.Sprint(live) == fmt.Sprint(wanted) { // JSON numbers decode to several types
			return nil
		}
		return []Conflict{{Field: path, Live: valueText(live), Wanted: valueText(wanted)}}
	}
	keys := map[string]bool{}
	for key := range lm {
		keys[key] = true
	}
	for key := range wm {
		keys[key] = true
	}
	var out []Conflict
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		out = append(out, fieldDifferences(lm[key], wm[key], path+"."+key)...)
	}
	return out
}

// valueText returns a value as JSON.
func valueText(v any) string {
	if v == nil {
		return "absent"
	}
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(data)
}

// String returns one or more lines: it compares texts of several lines line by
// line.
func (c Conflict) String() string {
	owner := ""
	if c.Owner != "" {
		owner = "; owner: " + c.Owner
	}
	var live, wanted string
	if json.Unmarshal([]byte(c.Live), &live) != nil || json.Unmarshal([]byte(c.Wanted), &wanted) != nil || !strings.Contains(live+wanted, "\n") {
		return fmt.Sprintf("%s: is %s, the bundle says %s%s", c.Field, c.Live, c.Wanted, owner)
	}
	text, err := difflib.GetUnifiedDiffString(difflib.UnifiedDiff{A: difflib.SplitLines(live), B: difflib.SplitLines(wanted), Context: 0})
	if err != nil {
		text = ""
	}
	return fmt.Sprintf("%s: differs from the bundle (- is, + the bundle says)%s\n    %s", c.Field, owner,
		strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n    "))
}
