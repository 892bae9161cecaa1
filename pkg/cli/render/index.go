// SPDX-License-Identifier: Apache-2.0

package render

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
)

const (
	// indexFile lists the files of the last render. kubectl takes no notice of it.
	indexFile = ".fairlead-render"

	indexHeader = "# Files written by \"fairlead render\"; it replaces and removes these and no others.\n"
)

// readIndex returns the paths that the last render wrote; none if there was none.
func readIndex(dir string) ([]string, error) {
	data, err := os.ReadFile(filepath.Join(dir, indexFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, line := range strings.Split(string(data), "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		// render never writes outside of the directory, so it did not write this path.
		if !filepath.IsLocal(line) {
			return nil, fmt.Errorf("%s names %q, which is outside of the directory: remove that line", indexFile, line)
		}
		paths = append(paths, line)
	}
	return paths, nil
}

// index lists paths, each once.
func index(paths []string) []byte {
	var s strings.Builder
	s.WriteString(indexHeader)
	for i, p := range paths {
		if !slices.Contains(paths[:i], p) {
			s.WriteString(p + "\n")
		}
	}
	return []byte(s.String())
}

func paths(files []bundle.File) []string {
	out := make([]string, 0, len(files))
	for _, f := range files {
		out = append(out, f.Path)
	}
	return out
}
