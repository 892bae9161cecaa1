// SPDX-License-Identifier: Apache-2.0

package crd_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/pkg/crd"
	"github.com/fairlead-dev/fairlead/pkg/crd/lint"
)

// changeCase is an entry of testdata/changes.
type changeCase struct {
	Name      string         `json:"name"`
	Rows      []string       `json:"rows"`
	File      string         `json:"file"`
	Old       map[string]any `json:"old"`
	Set       map[string]any `json:"set"`
	OldSchema map[string]any `json:"oldSchema"`
	Schema    map[string]any `json:"schema"`
	Findings  []string       `json:"findings"`

	index int
}

func changes(t *testing.T) []*changeCase {
	t.Helper()
	data, err := os.ReadFile("testdata/changes/changes.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var all []*changeCase
	if err := yaml.UnmarshalStrict(data, &all); err != nil {
		t.Fatal(err)
	}
	for i, c := range all {
		c.index = i
	}
	return all
}

// generations are the older and the newer definition.
func (c *changeCase) generations(t *testing.T) (old, current *crd.Definition) {
	t.Helper()
	build := func(set, schema map[string]any) *crd.Definition {
		return (&testCase{File: c.File, Set: set, index: 500 + c.index}).definition(t, schema)
	}
	return build(c.Old, c.OldSchema), build(c.Set, c.Schema)
}

// TestChanges proves that a change of a definition has exactly the findings that
// testdata/changes expects, and that nothing is found where a definition becomes wider.
func TestChanges(t *testing.T) {
	for _, c := range changes(t) {
		t.Run(c.Name, func(t *testing.T) {
			old, current := c.generations(t)
			findings, err := lint.Change(t.Context(), current, old)
			if err != nil {
				t.Fatal(err)
			}
			var got, text []string
			for _, f := range findings {
				got = append(got, string(f.Level)+" "+f.Rule)
				text = append(text, fmt.Sprintf("%s %s: %s", f.Rule, f.Field, f.Message))
				if f.Remedy == "" && f.Rule != "column-removed" {
					t.Errorf("%s has no remedy", f.Rule)
				}
			}
			slices.Sort(got)
			want := slices.Sorted(slices.Values(c.Findings))
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("findings (-want +got):\n%s\n%s", diff, strings.Join(text, "\n"))
			}
		})
	}
}

// TestSet proves that definitions are compared with each other and matched with older ones
// by name.
func TestSet(t *testing.T) {
	a := (&testCase{File: "crontabs.yaml", index: 700}).definition(t, nil)
	b := (&testCase{File: "shirts.yaml", index: 700, Set: map[string]any{"spec.names.shortNames": []any{"ct"}}}).definition(t, nil)
	findings, err := lint.Set(t.Context(), []*crd.Definition{a, b}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(findings) != 1 || findings[0].Rule != "names-conflict" || findings[0].Field != "spec.names.shortNames[0]" || !strings.Contains(findings[0].Message, a.Name) {
		t.Errorf("findings %+v", findings)
	}
	findings, err = lint.Set(t.Context(), []*crd.Definition{a}, map[string]*crd.Definition{"cronjobs." + a.Spec.Group: a})
	if err != nil {
		t.Fatal(err)
	}
	if len(findings) != 1 || findings[0].Rule != "name-changed" || findings[0].Level != lint.Error {
		t.Errorf("findings of a definition under another name: %+v", findings)
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
	for _, c := range cases(t) {
		check("cases_test.go", c.Name, c.Rows)
	}
	for _, c := range changes(t) {
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
