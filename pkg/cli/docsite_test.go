// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
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
// it lists, and no page that does not exist. A link that is broken on the site fails its build.
func TestDocSite(t *testing.T) {
	site := readSite(t)
	for _, kind := range []string{"not_found", "unrecognized_links", "anchors"} {
		if level := site.Validation.Links[kind]; !site.Strict || level != "warn" {
			t.Errorf("mkdocs.yml: strict is %t and validation.links.%s %q", site.Strict, kind, level)
		}
	}
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

// hooked runs the hook of mkdocs.yml as MkDocs does, on links of a page of a site that has the files of its arguments, and on headings.
const hooked = `
import importlib.util, json, sys, types
spec = importlib.util.spec_from_file_location("hook", sys.argv[1])
hook = importlib.util.module_from_spec(spec)
spec.loader.exec_module(hook)
files = types.SimpleNamespace(get_file_from_path=lambda path: path in sys.argv[3:] or None)
config = {"config_file_path": "mkdocs.yml", "docs_dir": "docs", "repo_url": "https://example.org/x", "mdx_configs": {}}
page = types.SimpleNamespace(file=types.SimpleNamespace(src_uri=sys.argv[2]))
slug = hook.on_config(config)["mdx_configs"]["toc"]["slugify"]
given = json.load(sys.stdin)
json.dump({
    "links": {link: hook.on_page_markdown("a [b" + link + ", c", page=page, config=config, files=files) for link in given["links"]},
    "headings": {heading: slug(heading, "-") for heading in given["headings"]},
}, sys.stdout)
`

// TestDocSiteHook: links to files of the repository lead out of the site. All others stay, also broken ones, which MkDocs reports. Headings get
// GitHub's anchors, which deploy/tools/mdlinks checks.
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
	links := map[string]string{
		"](../tunnel.md#limits)":       "](../tunnel.md#limits)",
		"](#limits)":                   "](#limits)",
		"](https://kubernetes.io/x#y)": "](https://kubernetes.io/x#y)",
		"](../gone.md)":                "](../gone.md)",
		"](../../gone)":                "](../../gone)",
		"](../../go.mod)":              outside + "go.mod)",
		"](../../README.md#commands)":  outside + "README.md#commands)",
		"](../../pkg/cli)":             outside + "pkg/cli)",
		"](../man)":                    outside + "docs/man)",
	}
	headings := map[string]string{
		"A b, c: d-e!":           "a-b-c-d-e",
		"What it says & does":    "what-it-says--does",
		"--agent-wait and a_b":   "--agent-wait-and-a_b",
		"Größe, in /readyz (v1)": "größe-in-readyz-v1",
	}
	given, err := json.Marshal(map[string][]string{"links": slices.Sorted(maps.Keys(links)), "headings": slices.Sorted(maps.Keys(headings))})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), python, "-c", hooked, hooks[0], "cli/README.md", "tunnel.md", "cli/README.md")
	var problem strings.Builder
	cmd.Dir, cmd.Stdin, cmd.Stderr = repository, bytes.NewReader(given), &problem
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, problem.String())
	}
	var got struct{ Links, Headings map[string]string }
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for link, want := range links {
		if got.Links[link] != "a [b"+want+", c" {
			t.Errorf("%s: %q", link, got.Links[link])
		}
	}
	for heading, want := range headings {
		if got.Headings[heading] != want {
			t.Errorf("heading %q has the anchor %q, want %q", heading, got.Headings[heading], want)
		}
	}
}
