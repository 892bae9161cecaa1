// SPDX-License-Identifier: Apache-2.0

package report_test

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-dev/fairlead/pkg/observe/rules"
	"github.com/fairlead-dev/fairlead/pkg/observe/rules/report"
)

var update = flag.Bool("update", false, "rewrite the table in docs/check.md and the pages in docs/checks")

// TestDocs proves that the table in docs/check.md has every check as the program has it. With -update it rewrites the table.
func TestDocs(t *testing.T) {
	const file, begin, end = "../../../../docs/check.md", "<!-- checks: begin -->\n", "<!-- checks: end -->"
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(data), begin)
	table, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s lacks the marks of the table", file)
	}
	want := report.Markdown(rules.All()) + "\n"
	if *update {
		if err := os.WriteFile(file, []byte(before+begin+want+end+after), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, table); diff != "" {
		t.Errorf("the table is not up to date: run go test ./pkg/observe/rules/report -update (-want +got):\n%s", diff)
	}
}

// TestPages proves that docs/checks has one page for each check, as the program has it. With -update it rewrites them.
func TestPages(t *testing.T) {
	const dir = "../../../../docs/checks"
	want := map[string]string{}
	for _, r := range rules.All() {
		want[r.ID+".md"] = report.Page(r)
	}
	if *update {
		if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o755)); err != nil {
			t.Fatal(err)
		}
		for name, page := range want {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(page), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	got := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		page, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		got[e.Name()] = string(page)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the pages are not up to date: run go test ./pkg/observe/rules/report -update (-want +got):\n%s", diff)
	}
}
