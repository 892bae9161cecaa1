// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// repository is a module with a release v0.1.0, and the files given after it.
func repository(t *testing.T, after map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	commit := func(files map[string]string, message string) {
		for name, text := range files {
			file := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		for _, args := range [][]string{{"add", "-A"}, {"-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-qm", message}} {
			if _, err := git(t.Context(), dir, args...); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := git(t.Context(), dir, "init", "-q"); err != nil {
		t.Fatal(err)
	}
	commit(map[string]string{
		"go.mod": "module example.org/m\n\ngo 1.26\n", "CHANGELOG.md": "# Changelog\n\n## Unreleased\n\n## 0.1.0\n\n- `pkg/a` is new.\n",
		"pkg/a/a.go": "package a\n\nfunc F(int) {}\n", "pkg/internal/b/b.go": "package b\n\nfunc F(int) {}\n",
		"cmd/c/main.go": "package main\n\nfunc F(int) {}\n\nfunc main() { F(1) }\n",
	}, "release")
	if _, err := git(t.Context(), dir, "tag", "v0.1.0"); err != nil {
		t.Fatal(err)
	}
	commit(after, "later")
	return dir
}

// TestRun compares with the release: what breaks users has to be in the changelog's section for the next one.
func TestRun(t *testing.T) {
	changelog := "# Changelog\n\n## Unreleased\n\n- `pkg/a`: pass a string.\n\n## 0.1.0\n"
	for name, tc := range map[string]struct {
		after     map[string]string
		out, fail string
	}{
		"compatible":           {after: map[string]string{"pkg/a/a.go": "package a\n\nfunc F(int) {}\n\nfunc G() {}\n"}},
		"internal and command": {after: map[string]string{"pkg/internal/b/b.go": "package b\n\nfunc F(string) {}\n", "cmd/c/main.go": "package main\n\nfunc main() {}\n"}},
		"incompatible":         {after: map[string]string{"pkg/a/a.go": "package a\n\nfunc F(string) {}\n"}, out: "F: changed from func(int) to func(string)", fail: "name it as `pkg/a`"},
		"in the changelog":     {after: map[string]string{"pkg/a/a.go": "package a\n\nfunc F(string) {}\n", "CHANGELOG.md": changelog}, out: "F: changed from func(int) to func(string)"},
		"function removed":     {after: map[string]string{"pkg/a/a.go": "package a\n"}, out: "F: removed", fail: "`pkg/a`"},
		"package removed":      {after: map[string]string{"pkg/a/a.go": "//go:build never\n\npackage a\n"}, out: "the package is removed", fail: "`pkg/a`"},
		"does not compile":     {after: map[string]string{"pkg/a/a.go": "package a\n\nfunc F(int) { x }\n"}, fail: "undefined: x"},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			err := run(t.Context(), repository(t, tc.after), "", &out)
			if got := out.String(); !strings.Contains(got, tc.out) || tc.out == "" && got != "" {
				t.Errorf("printed %q, want %q", got, tc.out)
			}
			if (err == nil) != (tc.fail == "") || err != nil && !strings.Contains(err.Error(), tc.fail) {
				t.Errorf("failed with %v, want %q", err, tc.fail)
			}
		})
	}
}

func TestNoRelease(t *testing.T) {
	dir := repository(t, map[string]string{"pkg/a/a.go": "package a\n"})
	if _, err := git(t.Context(), dir, "tag", "-d", "v0.1.0"); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := run(t.Context(), dir, "", &out); err != nil || !strings.Contains(out.String(), "no release yet") {
		t.Errorf("%v, %q", err, out.String())
	}
	if err := run(t.Context(), dir, "v9.9.9", &out); err == nil || !strings.Contains(err.Error(), "v9.9.9") {
		t.Errorf("an unknown base: %v", err)
	}
}
