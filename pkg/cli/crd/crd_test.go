// SPDX-License-Identifier: Apache-2.0

package crd

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/fairlead-dev/fairlead/pkg/cli/clusterflags"
	"github.com/fairlead-dev/fairlead/pkg/crd/lint"
)

const fixtures = "../../crd/testdata/"

// run runs the command and returns its exit code and output.
func run(t *testing.T, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	streams, in, out, errOut := genericiooptions.NewTestIOStreams()
	in.WriteString(stdin)
	cmd := NewCommand(streams)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	var coded *Error
	switch {
	case errors.As(err, &coded):
		return coded.Code, out.String(), errOut.String() + err.Error()
	case err != nil:
		return 1, out.String(), errOut.String() + err.Error()
	}
	return 0, out.String(), errOut.String()
}

// variant is crontabs.yaml with a change.
func variant(t *testing.T, from, to string) string {
	t.Helper()
	data, err := os.ReadFile(fixtures + "crontabs.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(string(data), from, to, 1)
	if text == string(data) {
		t.Fatalf("no %q in crontabs.yaml", from)
	}
	return text
}

// TestLint proves the exit codes, the place of a finding, and that other objects and
// standard input are read.
func TestLint(t *testing.T) {
	bad := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\n" + variant(t, "type: integer", "type: integer\n                default: x")
	for name, test := range map[string]struct {
		stdin string
		args  []string
		code  int
		want  string
	}{
		"good":                 {"", []string{fixtures + "crontabs.yaml"}, 0, "1 definitions checked, nothing found"},
		"directory":            {"", []string{fixtures, "--suppress", "conversion-ca,preferred-version,names-conflict"}, 0, "3 definitions checked"},
		"bad":                  {bad, []string{"-"}, 1, "standard input:29 (document 2) crontabs.stable.example.com"},
		"-f":                   {bad, []string{"-f", "-"}, 1, "properties[replicas].default"},
		"broken YAML":          {"a: [", []string{"-"}, 1, "unreadable"},
		"v1beta1":              {variant(t, "apiextensions.k8s.io/v1", "apiextensions.k8s.io/v1beta1"), []string{"-"}, 1, "rewrite the definition as apiextensions.k8s.io/v1"},
		"warning":              {"", []string{fixtures + "crontabs-versions.yaml"}, 0, "warning  conversion-ca"},
		"strict":               {"", []string{fixtures + "crontabs-versions.yaml", "--strict"}, 1, "warning  conversion-ca"},
		"change":               {variant(t, "type: integer", "type: string"), []string{"-", "--old", fixtures + "crontabs.yaml"}, 1, "the type changes from integer to string"},
		"no definition":        {"apiVersion: v1\nkind: Pod\n", []string{"-"}, 2, "no CustomResourceDefinition found"},
		"no file":              {"", nil, 2, "no file given"},
		"missing file":         {"", []string{"nowhere.yaml"}, 2, "nowhere.yaml"},
		"unknown rule":         {"", []string{fixtures, "--suppress", "x"}, 2, "no such rule"},
		"unknown output":       {"", []string{fixtures, "-o", "xml"}, 2, "choose table or json"},
		"unknown flag":         {"", []string{"--x"}, 2, "lint --help"},
		"standard input twice": {"", []string{"-", "--old", "-"}, 2, "write one of them to a file"},
		"old is broken":        {"", []string{fixtures + "crontabs.yaml", "--old", "nowhere"}, 2, "--old: "},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := run(t, test.stdin, append([]string{"lint"}, test.args...)...)
			if code != test.code || !strings.Contains(stdout+stderr, test.want) {
				t.Errorf("exit code %d, want %d, with %q in\n%s%s", code, test.code, test.want, stdout, stderr)
			}
		})
	}
	code, stdout, _ := run(t, bad, "lint", "-", "-o", "json")
	var r report
	if err := json.Unmarshal([]byte(stdout), &r); err != nil {
		t.Fatal(err)
	}
	if code != 1 || r.Errors != 1 || len(r.Findings) != 1 || r.Findings[0].Document != 2 || r.Findings[0].Line != 29 || r.Findings[0].Remedy == "" {
		t.Errorf("exit code %d, %+v", code, r)
	}
}

const object = "apiVersion: stable.example.com/v1\nkind: CronTab\nmetadata:\n  name: a\nspec:\n  image: x\n  odd: 1\n"

// TestValidate proves the exit codes, the lines of warnings and errors, and the object as
// stored.
func TestValidate(t *testing.T) {
	definition := fixtures + "crontabs.yaml"
	old := filepath.Join(t.TempDir(), "old.yaml")
	if err := os.WriteFile(old, []byte(object), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		stdin string
		args  []string
		code  int
		want  string
	}{
		"accepted":          {object, []string{"-f", definition, "-"}, 0, "-:7: CronTab/a: Warning: unknown field \"spec.odd\"\n-:1: CronTab/a: accepted\n"},
		"strict":            {object, []string{"-f", definition, "-", "--field-validation", "strict"}, 1, "strict decoding error"},
		"refused":           {strings.Replace(object, "image: x", "image: 7", 1), []string{"-f", definition, "-"}, 1, "-:6: CronTab/a: refused: spec.image: Invalid value: \"integer\""},
		"update":            {object, []string{"-f", definition, "-", "--old-object", old}, 0, "accepted"},
		"no old object":     {strings.Replace(object, "name: a", "name: b", 1), []string{"-f", definition, "-", "--old-object", old}, 2, "--old-object has no"},
		"status":            {object, []string{"-f", definition, "-", "--subresource", "status"}, 2, "--old-object"},
		"no definition":     {object, []string{"-"}, 2, "name its file with -f"},
		"other kind":        {"apiVersion: v1\nkind: Pod\n", []string{"-f", definition, "-"}, 2, "no definition of kind Pod given"},
		"broken definition": {variant(t, "storage: true", "storage: false"), []string{"-f", "-", old}, 2, "fairlead crd lint"},
		"broken object":     {"{", []string{"-f", definition, "-"}, 2, "standard input, document 1"},
		"bad mode":          {object, []string{"-f", definition, "-", "--field-validation", "x"}, 2, "choose strict, warn or ignore"},
		"stdin twice":       {object, []string{"-f", "-", "-"}, 2, "more than once"},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := run(t, test.stdin, append([]string{"validate"}, test.args...)...)
			if code != test.code || !strings.Contains(stdout+stderr, test.want) {
				t.Errorf("exit code %d, want %d, with %q in\n%s%s", code, test.code, test.want, stdout, stderr)
			}
		})
	}
	_, stdout, stderr := run(t, object, "validate", "-f", definition, "-", "-o", "yaml")
	const want = "apiVersion: stable.example.com/v1\nkind: CronTab\nmetadata:\n  generation: 1\n  name: a\n  namespace: default\nspec:\n  image: x\n"
	if stdout != want || !strings.Contains(stderr, "unknown field") {
		t.Errorf("stored:\n%s\nwant\n%s\nmessages: %s", stdout, want, stderr)
	}
}

// TestUsage proves that wrong usage of migrate and convert is refused before a cluster or
// a webhook is called.
func TestUsage(t *testing.T) {
	for want, args := range map[string][]string{
		"no definition given: name it": {"migrate"},
		"exclude each other":           {"migrate", "a", "--all"},
		"choose a positive number":     {"migrate", "a", "--qps", "0"},
		"name its file with -f":        {"convert", "x"},
		"there are only definitions":   {"convert", "-f", fixtures + "crontabs-versions.yaml", fixtures + "crontabs.yaml"},
		"unknown command":              {"lnt"},
	} {
		if code, _, stderr := run(t, "", args...); code != 2 || !strings.Contains(stderr, want) {
			t.Errorf("%v: exit code %d, %s; want 2 and %q", args, code, stderr, want)
		}
	}
}

// TestDocs proves that docs/crd-tools.md has every rule and every flag, and no flag that
// the commands lack.
func TestDocs(t *testing.T) {
	data, err := os.ReadFile("../../../docs/crd-tools.md")
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	for rule := range lint.Rules {
		if !strings.Contains(text, "`"+rule+"`") {
			t.Errorf("docs/crd-tools.md lacks the rule %s", rule)
		}
	}
	connection := pflag.NewFlagSet("", pflag.ContinueOnError)
	clusterflags.New().AddFlags(connection)
	known := map[string]bool{}
	for _, cmd := range NewCommand(genericiooptions.NewTestIOStreamsDiscard()).Commands() {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			known[f.Name] = true
			if connection.Lookup(f.Name) == nil && f.Name != "recursive" && !strings.Contains(text, "`--"+f.Name) {
				t.Errorf("docs/crd-tools.md lacks --%s of %s", f.Name, cmd.Name())
			}
		})
	}
	for _, m := range regexp.MustCompile(`--([a-z][a-z-]+)`).FindAllStringSubmatch(text, -1) {
		if !known[m[1]] {
			t.Errorf("docs/crd-tools.md has --%s, which no command has", m[1])
		}
	}
}
