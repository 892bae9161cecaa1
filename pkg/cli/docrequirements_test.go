// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	requirement = regexp.MustCompile(`(?m)^\| ([A-Z]+-\d+) \| ([^|]+) \| (.*) \|$`)
	testInFile  = regexp.MustCompile("\\[`(Test\\w+)`\\]\\(([^)]+_test\\.go)\\)")
)

// requirements are the numbers in each area, from and to.
var requirements = []struct {
	name   string
	ranges [][2]int
}{
	{"HTTP", [][2]int{{1, 8}}},
	{"SOCKS", [][2]int{{1, 12}}},
	{"AGG", [][2]int{{1, 10}, {20, 24}, {30, 32}, {40, 46}}},
	{"EXT", [][2]int{{1, 20}}},
	{"API", [][2]int{{5, 5}, {10, 13}, {20, 22}, {25, 25}, {27, 27}, {29, 29}, {81, 83}, {87, 88}}}, // those that a read-only API shows
}

// TestRequirements: docs/requirements.md has each requirement once and in order, with tests that
// exist in the files that it names.
func TestRequirements(t *testing.T) {
	const page = "docs/requirements.md"
	var want, got []string
	for _, area := range requirements {
		for _, r := range area.ranges {
			for i := r[0]; i <= r[1]; i++ {
				want = append(want, fmt.Sprintf("%s-%02d", area.name, i))
			}
		}
	}
	for _, row := range requirement.FindAllStringSubmatch(readDoc(t, page), -1) {
		got = append(got, row[1])
		tests := testInFile.FindAllStringSubmatch(row[3], -1)
		if len(tests) == 0 || len(tests) != strings.Count(row[3], "](") {
			t.Errorf("%s: %q is no list of tests", row[1], row[3])
		}
		for _, test := range tests {
			file := path.Join(path.Dir(page), test[2])
			if !strings.Contains(readDoc(t, file), "\nfunc "+test[1]+"(t *testing.T) {") {
				t.Errorf("%s: %s has no %s", row[1], file, test[1])
			}
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("the page has the requirements %q, want %q", got, want)
	}
}
