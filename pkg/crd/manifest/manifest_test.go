// SPDX-License-Identifier: Apache-2.0

package manifest_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-dev/fairlead/pkg/crd/manifest"
)

const stream = `# a comment
---
apiVersion: v1
kind: ConfigMap
metadata: {name: a}
--- # the second
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: ConfigMap
  metadata:
    name: b
- kind: Broken
---
a: 1
a: 2
---
just text
---
kind: Pod
`

// TestLoad proves that each object is found with its place, and that a broken document
// does not hide the others.
func TestLoad(t *testing.T) {
	docs, err := manifest.Load([]string{"-"}, false, strings.NewReader(stream))
	if err != nil {
		t.Fatal(err)
	}
	type row struct{ Source, Name, Err string }
	var got []row
	for _, d := range docs {
		r := row{Source: d.Source()}
		if d.Err != nil {
			r.Err = strings.Split(d.Err.Error(), ":")[0]
		} else {
			r.Name = d.Object.GetName()
		}
		got = append(got, r)
	}
	want := []row{
		{"standard input, document 1", "a", ""},
		{"standard input, document 2, item 0", "b", ""},
		{"standard input, document 2, item 1", "", ""},
		{"standard input, document 3", "", "not valid YAML or JSON"},
		{"standard input, document 4", "", "not a Kubernetes object"},
		{"standard input, document 5", "", "not a Kubernetes object"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("documents (-want +got):\n%s", diff)
	}
	for path, want := range map[string]int{"metadata.name": 13, "metadata.missing": 12, "": 10} {
		if got := docs[1].Line(path); got != want {
			t.Errorf("%q of the item of the list is on line %d, want %d", path, got, want)
		}
	}
	if got := docs[0].Line("metadata.name"); got != 5 {
		t.Errorf("metadata.name is on line %d, want 5", got)
	}
}

// TestLoadDirectory proves that directories are read, those below only on request, and
// that an empty one is an error.
func TestLoadDirectory(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a.yaml": "apiVersion: v1\nkind: A\n", "b.json": `{"apiVersion": "v1", "kind": "B"}`, "notes.txt": "x",
		"below/c.yml": "apiVersion: v1\nkind: C\n", "empty/readme": "",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for recursive, want := range map[bool]string{false: "AB", true: "ABC"} {
		docs, err := manifest.Load([]string{dir}, recursive, nil)
		if err != nil {
			t.Fatal(err)
		}
		kinds := ""
		for _, d := range docs {
			kinds += d.GroupKind().Kind
		}
		if kinds != want {
			t.Errorf("recursive %v: kinds %q, want %q", recursive, kinds, want)
		}
	}
	for _, path := range []string{filepath.Join(dir, "empty"), filepath.Join(dir, "missing")} {
		if _, err := manifest.Load([]string{path}, false, nil); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: error %v, want one that names it", path, err)
		}
	}
}
