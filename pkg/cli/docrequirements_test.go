// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	requirement  = regexp.MustCompile(`(?m)^\| ((?:[A-Z]+-\d+[a-z]?(?:, )?)+) \| ([^|]+) \| (.*) \|$`)
	testInFile   = regexp.MustCompile("\\[`(Test\\w+)(?:/([\\w ]+))?`\\]\\(([^)]+_test\\.go)\\)")
	requirements = []struct {
		area string
		// ids are the first and the last number of each range.
		ids [][2]int
	}{
		{"HTTP", [][2]int{{1, 8}}},
		{"SOCKS", [][2]int{{1, 12}}},
		{"CRD", [][2]int{{1, 23}, {30, 38}, {40, 45}, {50, 55}, {60, 63}, {70, 76}, {80, 85}, {100, 122}, {130, 134}, {140, 145}, {150, 152}, {160, 165}, {170, 172}, {175, 175}, {180, 188}}},
		{"VER", [][2]int{{1, 9}, {20, 25}, {30, 32}, {40, 48}, {60, 68}, {80, 85}, {90, 97}}},
		{"AGG", [][2]int{{1, 10}, {20, 24}, {30, 32}, {40, 46}}},
		{"EXT", [][2]int{{1, 20}}},
		{"API", [][2]int{{1, 7}, {10, 13}, {20, 30}, {40, 43}, {50, 65}, {69, 71}, {80, 88}}},
	}
	// seconds are requirements that follow the one with the same number.
	seconds = []string{"API-28a", "API-41a", "API-69a", "API-88a"}
)

// TestRequirements: docs/requirements.md has each requirement once and in order, with tests that
// exist in the files that it names, or the reason why there is none. Tests of definitions and their versions name their
// rows.
func TestRequirements(t *testing.T) {
	const page = "docs/requirements.md"
	var want, got []string
	for _, r := range requirements {
		for _, ids := range r.ids {
			for i := ids[0]; i <= ids[1]; i++ {
				id := fmt.Sprintf("%s-%02d", r.area, i)
				if id != "API-69" { // there is only the second one
					want = append(want, id)
				}
				if slices.Contains(seconds, id+"a") {
					want = append(want, id+"a")
				}
			}
		}
	}
	for _, row := range requirement.FindAllStringSubmatch(readDoc(t, page), -1) {
		got = append(got, strings.Split(row[1], ", ")...)
		tests := testInFile.FindAllStringSubmatch(row[3], -1)
		if len(tests) != strings.Count(row[3], "](") || (len(tests) == 0) != strings.HasPrefix(row[3], "not observed: ") {
			t.Errorf("%s: %q is neither a list of tests nor a reason", row[1], row[3])
		}
		for _, test := range tests {
			file := path.Join(path.Dir(page), test[3])
			text := readDoc(t, file)
			if !strings.Contains(text, "\nfunc "+test[1]+"(t *testing.T) {") {
				t.Errorf("%s: %s has no %s", row[1], file, test[1])
			}
			call, ok := subtest(text, test[2])
			if !ok {
				t.Errorf("%s: %s has no subtest %q", row[1], file, test[2])
			}
			if !strings.HasPrefix(row[1], "CRD-") && !strings.HasPrefix(row[1], "VER-") {
				continue
			}
			names := named(t, path.Dir(file), test[1], call)
			for _, id := range strings.Split(row[1], ", ") {
				if !slices.Contains(names, id) {
					t.Errorf("%s: %s does not name the row: add it to the comment of the test, or of its step, or to a case in testdata", id, file+" "+test[1]+" "+test[2])
				}
			}
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("the page has the requirements %q, want %q", got, want)
	}
}

// subtest returns the line that runs a subtest: a call, or a row of a table of steps.
func subtest(text, name string) (line string, ok bool) {
	if name == "" {
		return "", true
	}
	for line := range strings.Lines(text) {
		if strings.Contains(line, `t.Run("`+name+`"`) || strings.HasPrefix(line, "\t{\""+name+`", `) {
			return line, true
		}
	}
	return "", false
}

var (
	rowID    = regexp.MustCompile(`\b(CRD|VER)-\d+\b`)
	rowCases = regexp.MustCompile(`\btestdata/\w+`)
	tested   = map[string]map[string]string{}
)

// named returns the rows that a test names: in its comment, in the comment of a function that call runs, or in the cases
// of a directory testdata/... that such a comment refers to.
func named(t *testing.T, dir, test, call string) []string {
	t.Helper()
	if tested[dir] == nil {
		tested[dir] = comments(t, filepath.Join(repository, dir))
	}
	text := tested[dir][test]
	for _, function := range regexp.MustCompile(`\w+`).FindAllString(call, -1) {
		text += tested[dir][function]
	}
	for _, cases := range rowCases.FindAllString(text, -1) {
		files, err := filepath.Glob(filepath.Join(repository, dir, cases, "*.yaml"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s refers to %s: %v, %v", test, cases, files, err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			text += string(data)
		}
	}
	return rowID.FindAllString(text, -1)
}

// comments are those of the functions and methods in the tests of a directory.
func comments(t *testing.T, dir string) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				all[f.Name.Name] += f.Doc.Text()
			}
		}
	}
	return all
}
