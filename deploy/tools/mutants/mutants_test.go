// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/testutil"
)

// module copies testdata/module to a directory, so that the go.mod is none of this repository.
func module(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata/module")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module example.com/tiny\n\ngo 1.26\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// mutants runs the command on the module with a file of survivors.
func mutants(ctx context.Context, t *testing.T, survivors string, args ...string) (stdout string, err error) {
	t.Helper()
	t.Setenv("GOWORK", "off")
	file := filepath.Join(t.TempDir(), "survivors.txt")
	if err := os.WriteFile(file, []byte(survivors), 0o600); err != nil {
		t.Fatal(err)
	}
	out := &strings.Builder{}
	err = run(ctx, append([]string{"--dir", module(t), "--survivors", file, "--min-time", "3s"}, args...), out)
	return out.String(), err
}

func contain(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q is missing in:\n%s", part, text)
		}
	}
}

// known are the mutants of the module that survive all tests.
const known = `# They survive.
calc Both
- func Both(a, b bool) bool { return a && b }
+ func Both(a, b bool) bool { return a }
= it is not tested with one

calc Both
- func Both(a, b bool) bool { return a && b }
+ func Both(a, b bool) bool { return b }
= the same

calc Both
- func Both(a, b bool) bool { return a && b }
+ func Both(a, b bool) bool { return a || b }
= the same

calc Unused
- func Unused(n int) int { return n * 2 }
+ func Unused(n int) int { return n / 2 }
= no test

calc Unused
- func Unused(n int) int { return n * 2 }
+ func Unused(n int) int { return n * 3 }
= no test
`

// stale are entries that do not belong in the file.
const stale = `
calc Sum
- sum += n
+ sum -= n
= TestSum kills it

calc Gone
- a
+
= there is no such function
`

// All tests kill all mutants but five, which are listed. -v names what killed each: a test, a subtest, or the time limit. Entries
// that a test kills are named, and those that are no mutant fail the command.
func TestFull(t *testing.T) {
	testutil.Integration(t, "the Go compiler")
	out, err := mutants(t.Context(), t, known+stale, "--full", "--min=70", "-v", "./...")
	if err == nil || strings.Contains(err.Error(), "add tests") {
		t.Fatalf("error %v", err)
	}
	contain(t, err.Error(), "no such mutant, remove the entry: calc | Gone | a | ")
	contain(t, out,
		"killed by TestSum/three: calc/calc.go:29 Sum\n- sum += n\n+ sum -= n\n",
		"killed by the time limit: calc/calc.go:26 Sum\n- if n == 0 { break }\n+ if n == 0 {}\n",
		"killed by TestCheck: calc/calc.go:17 Check\n- return errors.New(\"too large\")\n+ return nil\n",
		"killed by TestSlow: calc/calc.go:42 Slow\n- if !(n < 0) {\n+ if (n < 0) {\n",
		"that a test kills: remove them.\n# calc/calc.go:29: killed by TestSum/three\n",
		"; 5 survivors in survivors.txt, 0 others\n")
	for _, wrong := range []string{"log.Print(\"too large\", 2)", "make([]int, 0, 6)"} {
		if strings.Contains(out, wrong) {
			t.Errorf("%q is a mutant", wrong)
		}
	}
}

// Survivors fail the command, in a format that can be copied to the file. A low share fails it also if all are listed.
func TestSurvivors(t *testing.T) {
	testutil.Full(t, "compiles many mutants")
	first, rest, _ := strings.Cut(known, "\n\n")
	out, err := mutants(t.Context(), t, rest, "--min=100", "./calc")
	if err == nil {
		t.Fatal("no error")
	}
	contain(t, err.Error(), "less than 100 %: add tests", " survivors are not in ")
	entry := strings.TrimPrefix(strings.Join(strings.Split(first, "\n")[:4], "\n"), "# They survive.\n")
	contain(t, out, "# calc/calc.go:11: survives, no test fails\n"+entry+"\n",
		"# calc/calc.go:40: survives, no test reaches it\ncalc Slow\n", // that test does not run with -short
		"; 4 survivors in survivors.txt, ")
}

// A sample has as many mutants as it should, and the same ones with the same seed.
func TestSample(t *testing.T) {
	testutil.Full(t, "compiles many mutants")
	var outs []string
	for range 2 {
		out, _ := mutants(t.Context(), t, "", "--sample=4", "--seed=3", "--min=0", "--parallel=1", "-v", "./calc")
		contain(t, out, " of 4 mutants killed")
		outs = append(outs, out)
	}
	if outs[0] != outs[1] {
		t.Errorf("two samples differ:\n%s\n%s", outs[0], outs[1])
	}
}

// Tests that fail without a mutant are an error, and show nothing about mutants.
func TestFailingTests(t *testing.T) {
	testutil.Integration(t, "the Go compiler")
	t.Setenv("MUTANTS_FAIL", "true")
	out, err := mutants(t.Context(), t, "", "./calc")
	if err == nil || !strings.Contains(err.Error(), "the tests fail without a mutant") || !strings.Contains(err.Error(), "it fails by itself") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestInterrupt(t *testing.T) {
	testutil.Integration(t, "the Go compiler")
	ctx, cancel := context.WithCancel(t.Context())
	pkgs, err := load(ctx, module(t), []string{"./calc"})
	if err != nil {
		t.Fatal(err)
	}
	o := &options{parallel: 2, minTime: 1}
	r, err := newRunner(ctx, pkgs[0], o)
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	cancel()
	_ = r.run(ctx, pkgs[0].mutants(), func(m *mutant, res result) { t.Errorf("a result after Ctrl-C: %v %v", m, res) })
}

func TestBadInput(t *testing.T) {
	for _, c := range []struct{ survivors, args, want string }{
		{"", "", "no package"},
		{"", "./nothing", "nothing"},
		{"", "--parallel=0 ./calc", "at least 1"},
		{"", "--min=101 ./calc", "0 to 100"},
		{"", "--sample=-1 ./calc", "0 for all"},
		{"", "--min-time=0s ./calc", "more than 0"},
		{"calc F\n+ x\n", "./calc", `:2: the line must begin with "- "`},
		{"calc F\n- x\n", "./calc", "the last entry is not complete"},
		{"calc\n- x\n+ y\n= z\n", "./calc", "no function or no reason"},
		{"calc F\n- x\n+ y\n=\n", "./calc", "no function or no reason"},
		{strings.Repeat("calc F\n- x\n+ y\n= z\n", 2), "./calc", ":8: the entry is there twice"},
	} {
		_, err := mutants(t.Context(), t, c.survivors, strings.Fields(c.args)...)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q with %q: %v, want %q", c.args, c.survivors, err, c.want)
		}
	}
}

// Each operator makes the mutants that it should.
func TestOperators(t *testing.T) {
	for code, want := range map[string][]string{
		"if a && b { f() }":   {"if a || b { f() }", "if a { f() }", "if b { f() }", "if a && b {}"},
		"if a { f() }":        {"if !(a) { f() }", "if a {}"},
		"if !a { f() }":       {"if a { f() }", "if !a {}"},
		"if n < 7 { f() }":    {"if n <= 7 { f() }", "if n >= 7 { f() }", "if n < 8 { f() }", "if n < 7 {}"},
		"n = n + 1":           {"n = n - 1", "n = n + 2", "_ = n + 1"},
		"n, a = 3, true":      {"n, a = 4, true", "n, a = 3, false", "_, _ = 3, true"},
		"e = nil":             {""},
		"n++":                 {"n--", ""},
		"n += 2":              {"n -= 2", "n += 3", "_ = 2"},
		"f()":                 {""},
		"defer f()":           {""},
		"for range n { f() }": {"for range n { }"},
		"for ; a; n++ { f() }": {
			"for ; a; n++ { }",
		},
		"for a { continue }":                                   {"for a { }"},
		"switch { case a: f() }":                               {"switch { case a: }"},
		"log.Print(1)":                                         nil,
		"if a { log.Print(1) }":                                {"if !(a) { log.Print(1) }"},
		"_ = make([]int, 1, 2)":                                {"_ = make([]int, 2, 2)"},
		"_ = func() error { return e }":                        {"_ = func() error { return nil }"},
		"_ = func() (int, bool, error) { return 0, false, e }": {"_ = func() (int, bool, error) { return 0, false, nil }"},
	} {
		got := mutate(t, code)
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s becomes\n%q, want\n%q", code, got, want)
		}
	}
}

// mutate returns the mutants of a statement that compile.
func mutate(t *testing.T, code string) []string {
	t.Helper()
	dir := t.TempDir()
	text := "package p\n\nimport \"log\"\n\nfunc f() {}\n\nfunc g(a, b bool, n int, e error) {\n" + code + "\n}\n\nvar _ = log.Print\n"
	for name, data := range map[string]string{"go.mod": "module example.com/p\n\ngo 1.26\n", "p.go": text} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pkgs, err := load(t.Context(), dir, []string{"."})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range pkgs[0].mutants() {
		if pkgs[0].compiles(m) {
			got = append(got, m.is)
		}
	}
	return got
}

// The use of an import or a variable that the mutant removes does not make it one that does not compile.
func TestRepair(t *testing.T) {
	got := mutate(t, "x := 7\nif a { _ = x }")
	if !slices.Contains(got, "if a {}") {
		t.Errorf("got %q", got)
	}
}
