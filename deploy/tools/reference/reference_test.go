// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// tree is a command line with what pages must show and must not.
func tree() []*cobra.Command {
	root := &cobra.Command{Use: "prog", Short: "About it"}
	run := &cobra.Command{Use: "run NAME", Short: "Run it", Run: func(*cobra.Command, []string) {}}
	run.Flags().String("server-id", "0b1c", "the ID")
	hidden := &cobra.Command{Use: "hidden", Hidden: true, Run: func(*cobra.Command, []string) {}}
	root.AddCommand(run, hidden)
	return []*cobra.Command{root}
}

// TestRender: each visible command has a Markdown page and a man page, a hidden one has none, and no page has a default
// that differs from run to run.
func TestRender(t *testing.T) {
	pages, err := render(tree())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"cli/README.md", "cli/prog.md", "cli/prog-run.md", "man/man1/prog.1", "man/man1/prog-run.1"} {
		if len(pages[name]) == 0 {
			t.Errorf("no page %s", name)
		}
	}
	for name, data := range pages {
		if strings.Contains(name, "hidden") || strings.Contains(string(data), "0b1c") || strings.Contains(string(data), "1970") {
			t.Errorf("%s:\n%s", name, data)
		}
	}
	if text := string(pages["cli/prog.md"]); !strings.Contains(text, "(prog-run.md)") {
		t.Errorf("the page of the root does not link to the page of its subcommand:\n%s", text)
	}
}

// TestCheck: -check finds a page that differs, one that is missing and one that belongs to no command, and changes none
// of them.
func TestCheck(t *testing.T) {
	pages, err := render(tree())
	if err != nil {
		t.Fatal(err)
	}
	for what, spoil := range map[string]func(dir string) error{
		"out of date":           func(dir string) error { return os.WriteFile(filepath.Join(dir, "cli/prog.md"), []byte("old"), 0o600) },
		"prog-run.1":            func(dir string) error { return os.Remove(filepath.Join(dir, "man/man1/prog-run.1")) },
		"belongs to no command": func(dir string) error { return os.WriteFile(filepath.Join(dir, "cli/prog-gone.md"), nil, 0o600) },
	} {
		dir := t.TempDir()
		if err := write(dir, pages, false); err != nil {
			t.Fatal(err)
		}
		if err := write(dir, pages, true); err != nil {
			t.Errorf("fresh pages: %v", err)
		}
		if err := spoil(dir); err != nil {
			t.Fatal(err)
		}
		if err := write(dir, pages, true); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
		if err := write(dir, pages, true); err == nil {
			t.Errorf("%s: -check repaired it", what)
		}
	}
}

// TestExamples: the help of each program has examples, and each line of them, with those that continue it, is a command of that program with flags
// that it has.
func TestExamples(t *testing.T) {
	for _, c := range commands() {
		if c.Name() == "fairlead" {
			continue // the tests of pkg/cli look at it
		}
		ran := 0
		for line := range strings.Lines(strings.ReplaceAll(c.Example, "\\\n", "")) {
			command, _, _ := strings.Cut(line, "#")
			words := strings.Fields(command)
			if len(words) == 0 {
				continue
			}
			if ran++; words[0] != c.Name() {
				t.Errorf("%s: example of %s", c.Name(), words[0])
			}
			if err := c.ParseFlags(words[1:]); err != nil || len(c.Flags().Args()) > 0 {
				t.Errorf("%s: %q: %v, arguments %q", c.Name(), command, err, c.Flags().Args())
			}
		}
		if ran == 0 {
			t.Errorf("%s: no example", c.Name())
		}
	}
}
