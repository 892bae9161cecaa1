// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// tree is a small repository.
func tree(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range map[string]string{"a/one.go": "1", "a/two.go": "2", "a/one_test.go": "t", "b.go": "b"} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func key(t *testing.T, root string, inputs, sources []string) string {
	t.Helper()
	k, err := stageKey(root, inputs, sources)
	if err != nil || len(k) != 16 {
		t.Fatalf("%q, %v", k, err)
	}
	return k
}

func TestStageKey(t *testing.T) {
	sources := []string{"a", "b.go"}
	root := tree(t)
	same := key(t, root, []string{"x", "y"}, sources)
	if other := key(t, tree(t), []string{"x", "y"}, []string{"b.go", "a"}); other != same {
		t.Errorf("another place and order: %s, want %s", other, same)
	}
	for name, change := range map[string]func(root string) []string{
		"an input":                        func(string) []string { return []string{"x", "z"} },
		"the border between two inputs":   func(string) []string { return []string{"xy", ""} },
		"a file":                          func(root string) []string { return edit(t, root, "a/two.go", "3") },
		"a new file":                      func(root string) []string { return edit(t, root, "a/three.go", "") },
		"the border between two files":    func(root string) []string { return edit(t, root, "a/one.go", "12") },
		"a file that is listed by itself": func(root string) []string { return edit(t, root, "b.go", "c") },
	} {
		changed := tree(t)
		if key(t, changed, change(changed), sources) == same {
			t.Errorf("%s changes nothing", name)
		}
	}
	if key(t, root, edit(t, root, "a/one_test.go", "u"), sources) != same {
		t.Error("a test changes the key")
	}
	if _, err := stageKey(root, nil, []string{"absent"}); err == nil || !strings.Contains(err.Error(), "root") {
		t.Errorf("started elsewhere: %v", err)
	}
}

func edit(t *testing.T, root, name, text string) []string {
	t.Helper()
	if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return []string{"x", "y"}
}

// A file that affects the content of an image but is in no list would cause a stale image.
func TestAllSourcesAreListed(t *testing.T) {
	aside := map[string]bool{"main.go": true, "doc.go": true, "builder.go": true, "stages.go": true, "docker.go": true}
	listed := map[string]bool{}
	for _, list := range sources {
		for _, source := range list {
			path := filepath.Join(root, source)
			info, err := os.Stat(path)
			if err != nil {
				t.Error(err)
				continue
			}
			if !info.IsDir() {
				listed[filepath.Clean(path)] = true
				continue
			}
			if err := filepath.WalkDir(path, func(path string, _ fs.DirEntry, err error) error {
				listed[filepath.Clean(path)] = true
				return err
			}); err != nil {
				t.Error(err)
			}
		}
	}
	if err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || strings.HasSuffix(path, "_test.go") || aside[path] {
			return err
		}
		if !listed[filepath.Clean(filepath.Join(root, sourceDir, path))] {
			t.Errorf("%s is in no stage's list of sources", path)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}
