// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	fenced = regexp.MustCompile("(?ms)^ *```.*?^ *```")
	mdLink = regexp.MustCompile(`\]\(([^)\s]+)\)`)
)

// TestDocTables: each row of a table has as many cells as its head. A | ends a cell in code, too, unless a backslash is before it.
func TestDocTables(t *testing.T) {
	for _, page := range append(docPages(t), "CHANGELOG.md") {
		for _, row := range oddRows(readDoc(t, page)) {
			t.Errorf("%s: %s has another number of cells than the head of its table", page, row)
		}
	}
}

// TestDocTablesFindMistakes: rows with a cell too many or too few are found, and those with an escaped | are not.
func TestDocTablesFindMistakes(t *testing.T) {
	const text = "| a | b |\n|---|---|\n| `x\\|y` | c |\n| `x|y` | d |\n| e |\n\n| f |\n|---|\n| g |\n```\n| h | i | j |\n```\n"
	if got := oddRows(text); !slices.Equal(got, []string{"| `x|y` | d |", "| e |"}) {
		t.Errorf("%q", got)
	}
}

// oddRows returns the rows of tables that have another number of cells than the first one.
func oddRows(text string) (odd []string) {
	head := 0
	for line := range strings.Lines(fenced.ReplaceAllString(text, "")) {
		line = strings.TrimSpace(line)
		bars := strings.Count(line, "|") - strings.Count(line, `\|`)
		switch {
		case !strings.HasPrefix(line, "|"):
			head = 0
		case head == 0:
			head = bars
		case bars != head:
			odd = append(odd, line)
		}
	}
	return odd
}

func readDoc(t *testing.T, page string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(repository, page))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func linksOf(text string) (links []string) {
	for _, m := range mdLink.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
		links = append(links, m[1])
	}
	return links
}
