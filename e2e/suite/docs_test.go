// SPDX-License-Identifier: Apache-2.0

package suite_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/e2e/doccommands"
	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
)

// TestDocs runs the commands of README.md and docs/*.md as a reader would: each page in a directory and with a home of its own, its blocks in order, with
// fairlead, kubectl and curl in PATH. Variables and the current directory hold until the end of a page. Each command must end with success, and in time.
// docsPages lists what this cluster cannot run, with reasons, and TestRunbooks and TestCheckPages run the pages below docs.
func TestDocs(t *testing.T) {
	if !suite.Simulated() {
		t.Skip("the lists of this test are those of an embedded cluster")
	}
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(pages) < 30 {
		t.Fatalf("%d pages: %v", len(pages), err)
	}
	pages = append([]string{"../../README.md"}, pages...)
	if testutil.Main() { // the pages of new users, which need none of the tools
		pages = []string{"../../README.md", "../../docs/quick-start.md"}
	} else {
		needsTools(t)
	}
	run(t, "commands of the documentation", pagesLimit, step{"each page", func(ctx context.Context, t *testing.T) {
		reader := newReader(ctx, t)
		common := excepts(docsCommon)
		for _, page := range pages {
			t.Run(strings.TrimPrefix(page, "../../"), func(t *testing.T) { runPage(ctx, t, reader, page, common) })
		}
		if !testutil.Main() {
			common.unused(t)
		}
		for name := range docsPages {
			if _, err := os.Stat("../../" + name); err != nil {
				t.Error(err)
			}
		}
	}})
}

// pagesLimit bounds all commands of many pages. Each command has a limit of its own.
const pagesLimit = 20 * time.Minute

func needsTools(t *testing.T) {
	t.Helper()
	for _, tool := range []string{"curl", "jq", "openssl"} {
		daemontest.Program(t, tool)
	}
}

// TestDocsFindsMistakes proves that TestDocs sees commands that fail, hang or touch this machine, and entries of lists that match nothing.
func TestDocsFindsMistakes(t *testing.T) {
	testutil.Full(t, "tests TestDocs, with curl and jq")
	if !suite.Simulated() {
		t.Skip("as TestDocs")
	}
	needsTools(t)
	run(t, "mistakes of commands", 3*time.Minute, step{"each mistake", func(ctx context.Context, t *testing.T) {
		p := &pageRun{path: newReader(ctx, t).path, used: map[string]bool{}, docsPage: docsPage{ends: map[string]int{"exit 1": 1}}}
		p.prepare(ctx, t, "mistakes")
		const hangs = "sleep 600 | cat"
		for command, good := range map[string]bool{
			"kubectl get pods": true, "kubectl get podz": false, "fairlead nonsense": false, "false | true": false, "exit 1": true, "exit 1; true": true,
			"exit 2": false, "cat <name>": false, "ls /etc/": false, "sudo rm file": false, hangs: false,
		} {
			limit := commandLimit
			if command == hangs {
				limit = 2 * time.Second
			}
			limited, cancel := context.WithTimeout(ctx, limit)
			if err := p.follow(limited, command); (err == nil) != good {
				t.Errorf("%s: %v", command, err)
			}
			cancel()
		}
		for _, command := range []string{"VALUE=1; mkdir there; cd there", `[ "$VALUE" = 1 ] && [ "${PWD##*/}" = there ]`} {
			if err := p.follow(ctx, command); err != nil {
				t.Error(err)
			}
		}
		listed := excepts(map[string]string{"make ": "a reason", "never": "a reason", "nothing": ""})
		if listed.has("make x"); len(listed.wrong()) != 2 {
			t.Errorf("complaints about exceptions: %q", listed.wrong())
		}
	}})
}

// docsPage is what a page needs to run here.
type docsPage struct {
	// except are commands that do not run, by how they begin, with the reason.
	except map[string]string
	// none is why no command of the page runs.
	none string
	// serve are whole commands that serve until Ctrl-C, as those that end with "&" do.
	serve []string
	// ends are exit codes of commands that the page expects to fail, or lets fail.
	ends map[string]int
	// replace are regular expressions, and what a reader of this cluster writes instead, which may have variables of environment.
	replace [][2]string
}

func runPage(ctx context.Context, t *testing.T, reader *reader, page string, common *exceptions) {
	data, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	name, _ := filepath.Rel("../..", page)
	p := &pageRun{reader: reader, path: reader.path, docsPage: docsPages[name], used: map[string]bool{}}
	commands, excepted, ran := doccommands.Commands(string(data)), excepts(p.except), 0
	defer excepted.unused(t)
	defer p.unused(t)
	for _, command := range commands {
		// Both lists count what they match.
		if own, all := excepted.has(command.Text), common.has(command.Text); own || all {
			continue
		}
		if ran++; ran == 1 {
			p.prepare(ctx, t, strings.TrimSuffix(filepath.Base(page), ".md"))
		}
		if p.verifiesAgain(command.Text) {
			t.Logf("  again %s", command.Text)
			continue
		}
		begin := time.Now()
		if err := p.follow(ctx, command.Text); err != nil {
			t.Errorf("%s:%d: %s\n%v", name, command.Line, command.Text, err)
		}
		t.Logf("%6.1fs %s", time.Since(begin).Seconds(), command.Text)
	}
	switch {
	case ran == 0 && len(commands) > 0 && p.none == "":
		t.Errorf("no command of %s runs: docsPages must say why", name)
	case p.none != "" && (ran > 0 || len(commands) == 0):
		t.Errorf("%d commands of %s run, and docsPages says that none does: %s", ran, name, p.none)
	}
}
