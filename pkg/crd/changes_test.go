// SPDX-License-Identifier: Apache-2.0

package crd_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/pkg/crd/internal/crdtest"
)

// TestChanges proves that a change of a definition has exactly the findings that
// testdata/changes expects, and that nothing is found where a definition becomes wider.
func TestChanges(t *testing.T) {
	for _, c := range crdtest.Changes(t) {
		t.Run(c.Name, func(t *testing.T) { crdtest.CheckChange(t, c) })
	}
}

// TestRows proves that each case names rows of docs/requirements.md, none of them twice, and
// that each row there that is observed by cases, changes or steps of TestDocuments has one. No step is there without a row.
func TestRows(t *testing.T) {
	page, err := os.ReadFile("../../docs/requirements.md")
	if err != nil {
		t.Fatal(err)
	}
	known, missing, observed := map[string]bool{}, map[string]bool{}, map[string][]string{}
	for _, line := range regexp.MustCompile(`(?m)^\| ([A-Z]+-\d+.*?) \|.*$`).FindAllStringSubmatch(string(page), -1) {
		for _, id := range strings.Split(line[1], ", ") {
			known[id] = true
			for _, step := range regexp.MustCompile("`TestDocuments/(\\w+)`").FindAllStringSubmatch(line[0], -1) {
				observed[step[1]] = append(observed[step[1]], id)
			}
			for _, file := range []string{"cases_test.go", "changes_test.go"} {
				if strings.Contains(line[0], "crd/"+file) {
					missing[file+" "+id] = true
				}
			}
		}
	}
	check := func(file, name string, rows []string) {
		if len(rows) == 0 || len(slices.Compact(slices.Sorted(slices.Values(rows)))) != len(rows) {
			t.Errorf("%s: rows %v", name, rows)
		}
		for _, id := range rows {
			if !known[id] {
				t.Errorf("%s: docs/requirements.md has no %s", name, id)
			}
			delete(missing, file+" "+id)
		}
	}
	for _, c := range crdtest.Cases(t) {
		check("cases_test.go", c.Name, c.Rows)
	}
	for _, c := range crdtest.Changes(t) {
		check("changes_test.go", c.Name, c.Rows)
	}
	for _, step := range documents {
		if len(observed[step.name]) == 0 {
			t.Errorf("docs/requirements.md has no row that TestDocuments/%s observes", step.name)
		}
		delete(observed, step.name)
	}
	for step, rows := range observed {
		t.Errorf("docs/requirements.md says that TestDocuments/%s observes %v, but there is no such step", step, rows)
	}
	for row := range missing {
		t.Errorf("docs/requirements.md says that a case observes it, but none does: %s", row)
	}
}
