// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
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
