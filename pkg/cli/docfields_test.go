// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/v1beta1"
)

// oldFields are fields of v1alpha1 that texts name on purpose, by file.
var oldFields = map[string][]string{
	"docs/api.md": {"konnectivity.serverHost", "konnectivity.agentPort", "leaseDuration", "renewDeadline", "retryPeriod", "drainTimeout", "caValidity"},
}

// TestFieldNames: each field of a Bundle that the documentation, a bundle in deploy or a text of a program names is one that the current version has.
// Errors of package bundle are left out: it writes them for both versions, and its tests look at the names.
func TestFieldNames(t *testing.T) {
	used, found := map[string]bool{}, 0
	look := func(file, text string) {
		for _, name := range fieldsIn(text) {
			found++
			if slices.Contains(oldFields[file], name) {
				used[file+" "+name] = true
			} else if !isField(name) {
				t.Errorf("%s names %s, which a Bundle of v1beta1 does not have", file, name)
			}
		}
	}
	for _, page := range docPages(t) { // CHANGELOG.md may name what was
		look(page, readDoc(t, page))
	}
	for _, dir := range []string{"pkg", "cmd", "deploy"} {
		err := filepath.WalkDir(filepath.Join(repository, dir), func(file string, d fs.DirEntry, err error) error {
			name := strings.TrimPrefix(file, repository+"/")
			switch {
			case err != nil || d.IsDir():
			case dir == "deploy" && filepath.Base(file) == "bundle.yaml":
				look(name, readDoc(t, name))
			case strings.HasSuffix(file, ".go") && !strings.HasSuffix(file, "_test.go") && !strings.HasPrefix(name, "pkg/bundle/") && !strings.HasPrefix(name, "pkg/apis/"):
				for _, text := range textsOf(t, file) {
					look(name, text)
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for file, names := range oldFields {
		for _, name := range names {
			if !used[file+" "+name] {
				t.Errorf("%s does not name %s: remove the exception", file, name)
			}
		}
	}
	if found < 200 {
		t.Errorf("found only %d fields", found)
	}
}

// TestFieldNamesFindMistakes: fields of the version before, and those that no version has, are found; names of files and of Go are no fields.
func TestFieldNamesFindMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"set `konnectivity.serverHost` to x":                        "konnectivity.serverHost",
		"spec.konnectivity.serverAddresses[0].host, then":           "",
		"konnectivity.serverAddresses[0].hosts":                     "konnectivity.serverAddresses[0].hosts",
		"`scheduler.coexistence.partition`":                         "scheduler.coexistence.partition",
		"scheduler.partition. Then":                                 "",
		"with another `serverHost` than":                            "serverHost",
		"lower leaseDuration":                                       "leaseDuration",
		"scheduler.yaml, gateway.md, scheduler.NewCommand":          "",
		"a/konnectivity.none example.scheduler.none":                "",
		"scheduler.profiles[0].pluginConfig[1].args.anything":       "",
		"scheduler.featureGates.Any gateway.enabled.more":           "gateway.enabled.more",
		"konnectivity.server.resources.limits, managementPolicy: X": "",
	} {
		got := ""
		for _, name := range fieldsIn(text) {
			if !isField(name) {
				got = name
			}
		}
		if got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

var (
	fieldPath = regexp.MustCompile(`(?:^|[^\w./-])(?:spec\.)?((?:scheduler|konnectivity|gateway|tunnelAPI|aggregation|pki|controlPlane)(?:\.[A-Za-z0-9]+(?:\[[^\]\s]*\])?)+)`)
	// notField tells files and Go's names from fields.
	notField = regexp.MustCompile(`\.(md|yaml|go|conf)$|^\w+\.[A-Z]`)
	// oldName finds names that only v1alpha1 has and that are no words.
	oldName = regexp.MustCompile(`\b(serverHost|agentPort|leaseDuration|renewDeadline|retryPeriod|drainTimeout|caValidity)\b`)
)

// fieldsIn returns what a text names as fields.
func fieldsIn(text string) []string {
	var names []string
	for _, m := range fieldPath.FindAllStringSubmatch(text, -1) {
		if !notField.MatchString(m[1]) {
			names = append(names, m[1])
		}
	}
	rest := fieldPath.ReplaceAllString(text, "")
	return append(names, oldName.FindAllString(rest, -1)...)
}

// isField reports whether a Bundle of the current version has a field.
func isField(name string) bool {
	t := reflect.TypeFor[v1beta1.BundleSpec]()
	for _, part := range strings.Split(name, ".") {
		part, index, _ := strings.Cut(part, "[")
		for t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		switch {
		case t == reflect.TypeFor[runtime.RawExtension]():
			return true
		case t.Kind() == reflect.Map:
			t = t.Elem()
		case t.Kind() == reflect.Struct:
			if t = fieldType(t, part); t == nil {
				return false
			}
		default:
			return false
		}
		for t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8 {
			t = t.Elem() // texts name fields of all items without an index, too
		} else if index != "" && t.Kind() != reflect.Map {
			return false
		}
	}
	return true
}

// fieldType is the type of the field with a name in JSON, nil if there is none.
func fieldType(t reflect.Type, name string) reflect.Type {
	for i := range t.NumField() {
		f := t.Field(i)
		tag, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if tag == name {
			return f.Type
		}
		if tag == "" && (f.Anonymous || options == "inline") && f.Type.Kind() == reflect.Struct {
			if inner := fieldType(f.Type, name); inner != nil {
				return inner
			}
		}
	}
	return nil
}

// textsOf returns the sentences among the literals of a file: those with a blank, and those that name a path of fields.
func textsOf(t *testing.T, file string) []string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	ast.Inspect(parsed, func(n ast.Node) bool {
		if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			if text, err := strconv.Unquote(literal.Value); err == nil && strings.ContainsAny(text, " .") {
				texts = append(texts, text)
			}
		}
		_, imports := n.(*ast.ImportSpec)
		return !imports
	})
	return texts
}

// TestBundleFileHasAllFields: deploy/bundle.yaml explains every field of a Bundle. A field whose default the file cannot show is in a comment of its part.
func TestBundleFileHasAllFields(t *testing.T) {
	text := readDoc(t, "deploy/bundle.yaml")
	var file struct {
		Spec map[string]any `json:"spec"`
	}
	if err := yaml.Unmarshal([]byte(text), &file); err != nil {
		t.Fatal(err)
	}
	missing := missingFields(reflect.TypeFor[v1beta1.BundleSpec](), "", file.Spec, commentsOfParts(text))
	if len(missing) > 0 {
		t.Errorf("deploy/bundle.yaml lacks %v", missing)
	}
}

// TestBundleFileFindsMissing: a field that is neither in the file nor in a comment of its part is found, one in a comment of another part included.
func TestBundleFileFindsMissing(t *testing.T) {
	type inner struct {
		Port   int    `json:"port"`
		Kind   string `json:"kind,omitempty"`
		Hidden *int   `json:"hidden,omitempty"`
	}
	type spec struct {
		One inner  `json:"one"`
		Two *inner `json:"two"`
	}
	const file = "spec:\n  one:\n    port: 1\n    # hidden: 2\n    kind: a\n  two: # of any kind\n    port: 1\n"
	shown := map[string]any{"one": map[string]any{"port": 1, "kind": "a"}, "two": map[string]any{"port": 1}}
	if got := missingFields(reflect.TypeFor[spec](), "", shown, commentsOfParts(file)); !slices.Equal(got, []string{"two.hidden"}) {
		t.Errorf("%v", got)
	}
}

// commentsOfParts returns the comments below each field of the spec.
func commentsOfParts(file string) map[string]string {
	parts, part := map[string]string{}, ""
	for line := range strings.Lines(file) {
		if m := regexp.MustCompile(`^  (\w+):`).FindStringSubmatch(line); m != nil {
			part = m[1]
		}
		if _, comment, ok := strings.Cut(line, "# "); ok {
			parts[part] += comment
		}
	}
	return parts
}

// missingFields lists the fields of a type that are neither shown nor named in a comment of their part. Items of lists and Kubernetes' own types count as one.
func missingFields(t reflect.Type, path string, shown any, comments map[string]string) (missing []string) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || !strings.HasPrefix(t.PkgPath(), "github.com/fairlead-dev/fairlead/") {
		return nil
	}
	fields, _ := shown.(map[string]any)
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if name == "" || name == "-" {
			continue
		}
		at := strings.TrimPrefix(path+"."+name, ".")
		part, _, _ := strings.Cut(at, ".")
		if _, ok := fields[name]; !ok && !regexp.MustCompile(`\b`+name+`\b`).MatchString(comments[part]) {
			missing = append(missing, at)
			continue
		}
		missing = append(missing, missingFields(t.Field(i).Type, at, fields[name], comments)...)
	}
	return missing
}
