// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	fenced  = regexp.MustCompile("(?ms)^ *```.*?^ *```")
	mdLink  = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#{1,6} (.+)$`)
)

// TestDocLinks: each relative link of the documentation leads to a file that exists, and to a heading that the file has.
func TestDocLinks(t *testing.T) {
	links := 0
	for _, page := range append(docPages(t), "CHANGELOG.md") {
		for _, target := range linksOf(readDoc(t, page)) {
			if u, err := url.Parse(target); err != nil || u.IsAbs() {
				continue // links to other sites need a network
			}
			links++
			file, anchor, _ := strings.Cut(target, "#")
			to := page
			if file != "" {
				to = path.Join(path.Dir(page), file)
			}
			info, err := os.Stat(filepath.Join(repository, to))
			if err != nil {
				t.Errorf("%s: link %s: %v", page, target, err)
				continue
			}
			if anchor != "" && !info.IsDir() && strings.HasSuffix(to, ".md") && !anchorsOf(readDoc(t, to))[anchor] {
				t.Errorf("%s: link %s: %s has no such heading", page, target, to)
			}
		}
	}
	if links < 100 {
		t.Errorf("found only %d links", links)
	}
}

// TestDocLinksFindMistakes: links in code are no links, and anchors are those of GitHub.
func TestDocLinksFindMistakes(t *testing.T) {
	const text = "# A `b`, c: d-e!\n[x](y.md#z)\n```sh\n[no](no.md)\n# no\n```\n# Twice\n# Twice\n"
	if got := strings.Join(linksOf(text), " "); got != "y.md#z" {
		t.Errorf("links %q", got)
	}
	anchors := anchorsOf(text)
	for _, want := range []string{"a-b-c-d-e", "twice", "twice-1"} {
		if !anchors[want] {
			t.Errorf("no anchor %s in %v", want, anchors)
		}
	}
	if anchors["no"] {
		t.Error("a comment in code is a heading")
	}
}

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

// anchorsOf returns the anchors that GitHub gives to headings.
func anchorsOf(text string) map[string]bool {
	anchors := map[string]bool{}
	drop := regexp.MustCompile(`[^\p{L}\p{N}\- _]`)
	for _, m := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
		title := mdLink.ReplaceAllString(m[1], "]")
		anchor := strings.ReplaceAll(drop.ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), ""), " ", "-")
		for n, base := 1, anchor; anchors[anchor]; n++ {
			anchor = base + "-" + string(rune('0'+n))
		}
		anchors[anchor] = true
	}
	return anchors
}
