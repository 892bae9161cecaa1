// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLint: types that break a convention give a finding of the linter that knows it, at the line
// of the field, and types that keep all give none.
func TestLint(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module example.org/api\n\ngo 1.26\n",
		"types.go": `package api

// Good keeps the conventions.
type Good struct {
	// name of the thing.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Name string ` + "`json:\"name,omitempty\"`" + `
}

// Bad does not.
type Bad struct {
	// Name of the thing.
	Name string ` + "`json:\"name\"`" + `
}

// hidden is no part of the API.
type hidden struct{ name string }
`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	findings, err := lint([]string{dir})
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, f := range findings {
		if !strings.Contains(f.message, "Bad.Name") || !strings.Contains(f.position, "types.go:1") {
			t.Errorf("%+v", f)
		}
		found[f.linter] = true
	}
	if !found["commentstart"] || !found["optionalorrequired"] || !found["maxlength"] {
		t.Errorf("findings %+v", findings)
	}
}

// TestExclusions: an exclusion applies to its linter and message alone, and needs a reason.
func TestExclusions(t *testing.T) {
	list, err := readExclusions([]byte("- {linter: a, message: 'field X\\.', reason: because}"))
	if err != nil {
		t.Fatal(err)
	}
	for f, want := range map[finding]bool{{"", "a", "field X.y"}: true, {"", "b", "field X.y"}: false, {"", "a", "field Xy"}: false} {
		if got := f.excluded(list); got != want {
			t.Errorf("%+v: %v", f, got)
		}
	}
	for _, bad := range []string{"- {linter: a, message: x}", "- {message: x, reason: y}", "- {linter: a, message: '(', reason: y}", "- {unknown: a}"} {
		if _, err := readExclusions([]byte(bad)); err == nil {
			t.Errorf("%s is accepted", bad)
		}
	}
}
