// SPDX-License-Identifier: Apache-2.0

package layers

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

const root = "../../.."

// paths are those from the root of the repository. A placeholder in capitals, a pattern or a command is none.
var paths = regexp.MustCompile("`((?:cmd|deploy|docs|e2e|manifests|pkg)/[a-z0-9_./-]*)`")

// shortPaths are files and packages below one of shortRoots, also as patterns. A name after a file is declared in it.
var (
	shortPaths = regexp.MustCompile("`((?:[a-z0-9]+/)+[a-z0-9_*]+(?:\\.go)?)`(?: \\(?`([A-Za-z]+)`)?")
	shortRoots = []string{"pkg/konnectivity", "pkg/konnectivity/internal", "pkg"}
	fromRoot   = regexp.MustCompile("^(cmd|deploy|docs|e2e|manifests|pkg)/")
)

func page(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestPathsInDocs proves that each file and directory of the repository exists that the pages for contributors name.
func TestPathsInDocs(t *testing.T) {
	for _, name := range []string{"CONTRIBUTING.md", "docs/architecture.md"} {
		found := paths.FindAllSubmatch(page(t, name), -1)
		if len(found) < 20 {
			t.Errorf("%s: %d paths, so the test does not see them", name, len(found))
		}
		for _, m := range found {
			if _, err := os.Stat(filepath.Join(root, string(m[1]))); err != nil {
				t.Errorf("%s names %s: correct the page if it has moved: %v", name, m[1], err)
			}
		}
	}
}

// TestShortPathsInDocs does the same for paths that leave out where the tunnel's packages are, such as link/window.go.
func TestShortPathsInDocs(t *testing.T) {
	for name, least := range map[string]int{"CONTRIBUTING.md": 6, "docs/architecture.md": 15, "docs/flow-control.md": 25} {
		seen := 0
		for _, m := range shortPaths.FindAllSubmatch(page(t, name), -1) {
			path, declared := string(m[1]), string(m[2])
			if fromRoot.MatchString(path) {
				continue
			}
			seen++
			if err := resolve(path, declared); err != "" {
				t.Errorf("%s names %s, %s: correct the page if it has moved", name, path, err)
			}
		}
		if seen < least {
			t.Errorf("%s: %d short paths, so the test does not see them", name, seen)
		}
	}
}

// resolve says what is wrong with a short path, and with a name that is declared in it.
func resolve(path, declared string) string {
	var files []string
	for _, dir := range shortRoots {
		found, err := filepath.Glob(filepath.Join(root, dir, path))
		if err != nil {
			return err.Error()
		}
		files = append(files, found...)
	}
	if len(files) == 0 {
		return "which is in none of the directories that short paths begin in"
	}
	if declared != "" && !slices.ContainsFunc(files, func(f string) bool {
		text, err := os.ReadFile(f)
		return err == nil && bytes.Contains(text, []byte(declared))
	}) {
		return "which does not have " + declared
	}
	return ""
}

// TestResolve proves that a file or a name that does not exist is found.
func TestResolve(t *testing.T) {
	for path, want := range map[string]bool{"link/window.go": true, "server/upstream*.go": true, "server/app": true, "link/windows.go": false, "server/nothing*.go": false} {
		if got := resolve(path, ""); (got == "") != want {
			t.Errorf("%s: %q", path, got)
		}
	}
	if resolve("server/connect.go", "holdFirst") != "" || resolve("server/connect.go", "holdLast") == "" {
		t.Error("names in files are not looked at")
	}
}
