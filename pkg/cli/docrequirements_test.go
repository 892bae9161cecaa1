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
	testInFile   = regexp.MustCompile("\\[`(Test\\w+)(?:/([\\w ,']+))?`\\]\\(([^)]+_test\\.go)\\)")
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
		{"SCHED", [][2]int{{1, 3}, {10, 26}, {30, 38}, {40, 43}, {50, 51}}},
		{"KON", [][2]int{{1, 11}, {20, 24}, {30, 51}, {60, 78}, {80, 86}}},
		{"OLD", [][2]int{{1, 9}, {20, 30}, {40, 61}, {70, 81}, {90, 100}}},
	}
	// seconds are requirements that follow the one with the same number.
	seconds = []string{"API-28a", "API-41a", "API-69a", "API-88a", "KON-09a"}
)

// TestRequirements: docs/requirements.md has each requirement once and in order, with tests that
// exist in the files that it names and that name the row, or the reason why there is none.
func TestRequirements(t *testing.T) {
	var want []string
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
	got, faults := checkRequirements(repository, "docs/requirements.md")
	for _, fault := range faults {
		t.Error(fault)
	}
	if !slices.Equal(got, want) {
		t.Errorf("the page has the requirements %q, want %q", got, want)
	}
}

// TestRequirementsFindMistakes: tests that do not exist, or that do not name the row, are found, and rows without a test or a reason.
func TestRequirementsFindMistakes(t *testing.T) {
	const test = `package x

// TestDoc observes CRD-01 of the page. FL-KON-02 is another one.
func TestDoc(t *testing.T) {
	t.Run("closure", func(t *testing.T) { step(t) })
	for name, step := range map[string]func(*testing.T){
		"of a map, with a comma": testStep,
	} {
		t.Run(name, step)
	}
}

func TestBody(t *testing.T) {
	// OLD-100: it is said in the body.
}

// TestCases reads testdata/cases.
func TestCases(t *testing.T) {}

// step observes KON-09a.
func step(t *testing.T) {}

func testStep(t *testing.T) {
	t.Log("API-43")
}
`
	root := t.TempDir()
	for name, text := range map[string]string{"pkg/x/x_test.go": test, "pkg/x/testdata/cases/all.yaml": "- name: a\n  rows: [VER-01]\n"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	link := func(test string) string { return "[`" + test + "`](../pkg/x/x_test.go)" }
	for row, want := range map[string]string{
		"| CRD-01 | a | " + link("TestDoc") + " |":                                "",
		"| OLD-100 | a | " + link("TestBody") + " |":                              "",
		"| VER-01 | a | " + link("TestCases") + " |":                              "",
		"| KON-09a | a | " + link("TestDoc/closure") + " |":                       "",
		"| API-43 | a | " + link("TestDoc/of a map, with a comma") + " |":         "",
		"| CRD-01, CRD-02 | a | " + link("TestDoc") + " |":                        "CRD-02: pkg/x/x_test.go TestDoc does not name the row",
		"| KON-02 | a | " + link("TestDoc") + " |":                                "does not name the row",
		"| KON-09 | a | " + link("TestDoc/closure") + " |":                        "does not name the row",
		"| OLD-10 | a | " + link("TestBody") + " |":                               "does not name the row",
		"| API-43 | a | " + link("TestDoc/closure") + " |":                        "does not name the row",
		"| VER-02 | a | " + link("TestCases") + " |":                              "does not name the row",
		"| CRD-01 | a | " + link("TestDok") + " |":                                "has no TestDok",
		"| CRD-01 | a | " + link("TestDoc") + ", " + link("TestGone") + " |":      "has no TestGone",
		"| CRD-01 | a | " + link("TestDoc/closures") + " |":                       `has no subtest "closures"`,
		"| CRD-01 | a | [`TestDoc`](../pkg/x/y_test.go) |":                        "y_test.go",
		"| CRD-01 | a | it is clear |":                                            "neither a list of tests nor a reason",
		"| CRD-01 | a | " + link("TestDoc") + " and [more](../pkg/x/x_test.go) |": "neither a list of tests nor a reason",
		"| CRD-01 | a | not observed: " + link("TestDoc") + " |":                  "neither a list of tests nor a reason",
		"| CRD-01 | a | not observed: a reason |":                                 "",
	} {
		if err := os.MkdirAll(filepath.Join(root, "docs"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, "docs/page.md"), []byte(row+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		_, faults := checkRequirements(root, "docs/page.md")
		if got := strings.Join(faults, "\n"); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", row, got, want)
		}
	}
}

// checkRequirements returns the ids of a page's rows in order, and what is wrong with the rows.
func checkRequirements(root, page string) (ids, faults []string) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	text, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		return nil, []string{err.Error()}
	}
	dirs := map[string]functions{}
	for _, row := range requirement.FindAllStringSubmatch(string(text), -1) {
		rows := strings.Split(row[1], ", ")
		ids = append(ids, rows...)
		tests := testInFile.FindAllStringSubmatch(row[3], -1)
		if len(tests) != strings.Count(row[3], "](") || (len(tests) == 0) != strings.HasPrefix(row[3], "not observed: ") {
			fault("%s: %q is neither a list of tests nor a reason", row[1], row[3])
		}
		for _, test := range tests {
			file := path.Join(path.Dir(page), test[3])
			text, err := os.ReadFile(filepath.Join(root, file))
			if err != nil {
				fault("%s: %v", row[1], err)
				continue
			}
			if !strings.Contains(string(text), "\nfunc "+test[1]+"(t *testing.T) {") {
				fault("%s: %s has no %s", row[1], file, test[1])
				continue
			}
			call, ok := subtest(string(text), test[2])
			if !ok {
				fault("%s: %s has no subtest %q", row[1], file, test[2])
				continue
			}
			dir := path.Dir(file)
			if dirs[dir] == nil {
				if dirs[dir], err = functionsOf(filepath.Join(root, dir)); err != nil {
					fault("%s: %v", row[1], err)
					dirs[dir] = functions{}
				}
			}
			names, err := dirs[dir].named(filepath.Join(root, dir), test[1], call)
			if err != nil {
				fault("%s: %s: %v", row[1], file, err)
			}
			for _, id := range rows {
				if !slices.Contains(names, id) {
					fault("%s: %s does not name the row: add it to the comment of the test, or of its step, or to a case in testdata", id, strings.TrimSpace(file+" "+test[1]+" "+test[2]))
				}
			}
		}
	}
	return ids, faults
}

// subtest returns the line that runs a subtest: a call, a row of a table of steps, or one of a map.
func subtest(text, name string) (line string, ok bool) {
	if name == "" {
		return "", true
	}
	for line := range strings.Lines(text) {
		if strings.Contains(line, `t.Run("`+name+`"`) || strings.HasPrefix(line, "\t{\""+name+`", `) || strings.HasPrefix(line, "\t\t\""+name+`": `) {
			return line, true
		}
	}
	return "", false
}

var (
	// rowID finds ids of rows, and not those of checks of fairlead check, which begin with FL-.
	rowID    = regexp.MustCompile(`(?:^|[^-\w])([A-Z]+-\d+[a-z]?)\b`)
	rowCases = regexp.MustCompile(`\btestdata/\w+`)
)

// function is one in the tests of a directory.
type function struct{ comment, text string }

type functions map[string]function

// named returns the rows that a test names: in its comment or body, in those of a function that call runs if this is about one of its
// subtests, or in the cases of a directory testdata/... that such a comment refers to.
func (all functions) named(dir, test, call string) ([]string, error) {
	comments := all[test].comment
	text := comments
	if call == "" {
		text = all[test].text
	}
	for _, name := range regexp.MustCompile(`\w+`).FindAllString(call, -1) {
		comments += all[name].comment
		text += all[name].text
	}
	for _, cases := range rowCases.FindAllString(comments, -1) {
		files, err := filepath.Glob(filepath.Join(dir, cases, "*.yaml"))
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			text += string(data)
		}
	}
	var ids []string
	for _, m := range rowID.FindAllStringSubmatch(text, -1) {
		ids = append(ids, m[1])
	}
	return ids, nil
}

// functionsOf are the functions and methods in the tests of a directory.
func functionsOf(dir string) (functions, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return nil, err
	}
	all := functions{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, file, data, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, d := range f.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				before, comment := all[f.Name.Name], f.Doc.Text()
				text := comment + string(data[set.Position(f.Pos()).Offset:set.Position(f.End()).Offset])
				all[f.Name.Name] = function{before.comment + "\n" + comment, before.text + "\n" + text}
			}
		}
	}
	return all, nil
}
