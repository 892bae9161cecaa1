// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"encoding/csv"
	"strings"
	"testing"
)

// A path with a comma or a quote reaches a flag that is a list, read as CSV, as one value.
func TestListValue(t *testing.T) {
	for _, path := range []string{"/state/kwok.yaml", "/a,b/kwok.yaml", `/a"b/kwok.yaml`, `/",",/kwok.yaml`, "/a b/kwok.yaml"} {
		got, err := csv.NewReader(strings.NewReader(listValue(path))).Read()
		if err != nil || len(got) != 1 || got[0] != path {
			t.Errorf("%q is read as %q, %v", path, got, err)
		}
	}
}

// kwok reads its whole configuration from a state directory whose name has a comma or a
// quote: its --config is a list.
func TestKwokConfigIsOneValue(t *testing.T) {
	for _, root := range []string{"/state", "/a,b", `/a"b`} {
		p := testPlan(t, "")
		l, err := NewLayout(root, "dev")
		if err != nil {
			t.Fatal(err)
		}
		p.Layout = l
		got, err := csv.NewReader(strings.NewReader(flagMap(t, specs(t, p)["kwok"].Args)["config"])).Read()
		if err != nil || len(got) != 1 || got[0] != p.kwokConfig() {
			t.Errorf("below %s: --config is read as %q, %v", root, got, err)
		}
	}
}
