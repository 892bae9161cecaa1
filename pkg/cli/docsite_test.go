// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// site is mkdocs.yml.
type site struct {
	DocsDir    string   `json:"docs_dir"`
	Strict     bool     `json:"strict"`
	Hooks      []string `json:"hooks"`
	Validation struct {
		Links map[string]string `json:"links"`
	} `json:"validation"`
	Nav []any `json:"nav"`
}

func readSite(t *testing.T) (s site) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(readDoc(t, "mkdocs.yml")), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestDocSite: mkdocs.yml lists each page below docs exactly once, apart from generated and numbered ones, whose index
// it lists, and no page that does not exist.
func TestDocSite(t *testing.T) {
	site := readSite(t)
	listed := map[string]int{}
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case string:
			listed[v]++
		case []any:
			for _, e := range v {
				walk(e)
			}
		case map[string]any:
			for _, e := range v {
				walk(e)
			}
		}
	}
	walk(site.Nav)
	for _, page := range docPages(t) {
		name, ok := strings.CutPrefix(page, "docs/")
		dir := path.Dir(name)
		if !ok || dir != "." && path.Base(name) != "README.md" {
			continue
		}
		if listed[name] != 1 {
			t.Errorf("mkdocs.yml lists %s %d times", name, listed[name])
		}
		delete(listed, name)
	}
	for name := range listed {
		if _, err := os.Stat(filepath.Join(repository, site.DocsDir, name)); err != nil {
			t.Errorf("mkdocs.yml: %v", err)
		}
	}
}

// TestDocIndex: docs/README.md leads to each page in docs.
func TestDocIndex(t *testing.T) {
	links := linksOf(readDoc(t, "docs/README.md"))
	for _, page := range docPages(t) {
		if name := strings.TrimPrefix(page, "docs/"); path.Dir(page) == "docs" && name != "README.md" && !slices.Contains(links, name) {
			t.Errorf("docs/README.md has no link to %s", name)
		}
	}
}

// TestDocSiteLinks: a link that is broken on the site fails its build. MkDocs gives headings other anchors than GitHub, so an anchor has to be one of both.
func TestDocSiteLinks(t *testing.T) {
	site := readSite(t)
	for _, kind := range []string{"not_found", "unrecognized_links", "anchors"} {
		if level := site.Validation.Links[kind]; !site.Strict || level != "warn" {
			t.Errorf("mkdocs.yml: strict is %t and validation.links.%s %q", site.Strict, kind, level)
		}
	}
	anchors := 0
	for _, page := range docPages(t) {
		if !strings.HasPrefix(page, site.DocsDir+"/") {
			continue
		}
		for _, target := range linksOf(readDoc(t, page)) {
			file, anchor, _ := strings.Cut(target, "#")
			to := page
			if file != "" {
				to = path.Join(path.Dir(page), file)
			}
			if anchor == "" || strings.Contains(target, ":") || !strings.HasPrefix(to, site.DocsDir+"/") || !strings.HasSuffix(to, ".md") {
				continue
			}
			if anchors++; !siteAnchorsOf(readDoc(t, to))[anchor] {
				t.Errorf("%s: link %s: on the site, %s has no such heading", page, target, to)
			}
		}
	}
	if anchors < 30 {
		t.Errorf("found only %d links with an anchor", anchors)
	}
}

// TestDocSiteLinksFindMistakes: anchors are those of MkDocs.
func TestDocSiteLinksFindMistakes(t *testing.T) {
	got := siteAnchorsOf("# A `b`, c: d-e & f!\n# Twice\n# Twice\n# [x](y.md) z\n```sh\n# no\n```\n")
	for _, want := range []string{"a-b-c-d-e-f", "twice", "twice_1", "x-z"} {
		if !got[want] {
			t.Errorf("no anchor %s in %v", want, got)
		}
	}
	if len(got) != 4 {
		t.Errorf("anchors %v", got)
	}
}

// siteAnchorsOf returns the anchors that MkDocs gives to headings.
func siteAnchorsOf(text string) map[string]bool {
	anchors := map[string]bool{}
	drop, dashes := regexp.MustCompile(`[^\w\s-]`), regexp.MustCompile(`[-\s]+`)
	for _, m := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
		title := drop.ReplaceAllString(mdLink.ReplaceAllString(m[1], "]"), "")
		base := dashes.ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), "-")
		anchor := base
		for n := 1; anchors[anchor]; n++ {
			anchor = base + "_" + strconv.Itoa(n)
		}
		anchors[anchor] = true
	}
	return anchors
}

// hooked runs the hook of mkdocs.yml on a page, as MkDocs does, with a site that has the files of its arguments.
const hooked = `
import importlib.util, sys, types
spec = importlib.util.spec_from_file_location("hook", sys.argv[1])
hook = importlib.util.module_from_spec(spec)
spec.loader.exec_module(hook)
files = types.SimpleNamespace(get_file_from_path=lambda path: path in sys.argv[3:] or None)
config = {"config_file_path": "mkdocs.yml", "docs_dir": "docs", "repo_url": "https://example.org/x"}
page = types.SimpleNamespace(file=types.SimpleNamespace(src_uri=sys.argv[2]))
sys.stdout.write(hook.on_page_markdown(sys.stdin.read(), page=page, config=config, files=files))
`

// TestDocSiteHook: links to files of the repository lead out of the site. All others stay, also broken ones, which MkDocs reports.
func TestDocSiteHook(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3")
	}
	hooks := readSite(t).Hooks
	if len(hooks) != 1 {
		t.Fatalf("hooks %v", hooks)
	}
	const outside = "](https://example.org/x/blob/main/"
	for link, want := range map[string]string{
		"](../tunnel.md#limits)":       "](../tunnel.md#limits)",
		"](#limits)":                   "](#limits)",
		"](https://kubernetes.io/x#y)": "](https://kubernetes.io/x#y)",
		"](../gone.md)":                "](../gone.md)",
		"](../../gone)":                "](../../gone)",
		"](../../go.mod)":              outside + "go.mod)",
		"](../../README.md#commands)":  outside + "README.md#commands)",
		"](../../pkg/cli)":             outside + "pkg/cli)",
		"](../man)":                    outside + "docs/man)",
	} {
		cmd := exec.CommandContext(t.Context(), python, "-c", hooked, hooks[0], "cli/README.md", "tunnel.md", "cli/README.md")
		cmd.Dir, cmd.Stdin = repository, strings.NewReader("a [b"+link+", c")
		out, err := cmd.CombinedOutput()
		if got := string(out); err != nil || got != "a [b"+want+", c" {
			t.Errorf("%s: %q, %v", link, got, err)
		}
	}
}
