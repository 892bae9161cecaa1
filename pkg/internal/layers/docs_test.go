// SPDX-License-Identifier: Apache-2.0

package layers

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// paths are those from the root of the repository. A placeholder in capitals, a pattern or a command is none.
var paths = regexp.MustCompile("`((?:cmd|deploy|docs|e2e|manifests|pkg)/[a-z0-9_./-]*)`")

// TestPathsInDocs proves that each file and directory of the repository exists that the pages for contributors name.
func TestPathsInDocs(t *testing.T) {
	const root = "../../.."
	for _, page := range []string{"CONTRIBUTING.md", "docs/architecture.md"} {
		text, err := os.ReadFile(filepath.Join(root, page))
		if err != nil {
			t.Fatal(err)
		}
		found := paths.FindAllSubmatch(text, -1)
		if len(found) < 20 {
			t.Errorf("%s: %d paths, so the test does not see them", page, len(found))
		}
		for _, m := range found {
			if _, err := os.Stat(filepath.Join(root, string(m[1]))); err != nil {
				t.Errorf("%s names %s: correct the page if it has moved: %v", page, m[1], err)
			}
		}
	}
}
