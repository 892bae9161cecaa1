// SPDX-License-Identifier: Apache-2.0

// Command reference renders the reference of the command line from the commands themselves: docs/cli as Markdown, and
// docs/man/man1 as man pages. Run it in deploy/tools:
//
//	go run ./reference [-check]
//
// With -check it writes nothing and fails if a page is out of date, missing or left over.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/fairlead-dev/fairlead/pkg/cli"
	agentapp "github.com/fairlead-dev/fairlead/pkg/konnectivity/agent/app"
	serverapp "github.com/fairlead-dev/fairlead/pkg/konnectivity/server/app"
	"github.com/fairlead-dev/fairlead/pkg/operator"
	tunnelapiapp "github.com/fairlead-dev/fairlead/pkg/tunnelapi/app"
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// The directories below docs, and the files in them that this command owns.
var owned = map[string]string{"cli": "*.md", "man/man1": "*.1"}

func main() {
	check := flag.Bool("check", false, "write nothing, fail if a page is out of date")
	docs := flag.String("docs", "../../docs", "directory of the documentation")
	flag.Parse()
	if err := run(*docs, *check); err != nil {
		fmt.Fprintln(os.Stderr, "reference:", err)
		os.Exit(1)
	}
}

func run(docs string, check bool) error {
	home, err := os.MkdirTemp("", "reference-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(home)
	// Defaults of flags must not depend on who runs this.
	for name, value := range map[string]string{"HOME": home, "KUBECONFIG": "", "XDG_CACHE_HOME": ""} {
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	pages, err := render(commands())
	if err != nil {
		return err
	}
	for name, data := range pages {
		pages[name] = bytes.ReplaceAll(data, []byte(home), []byte("$HOME"))
	}
	return write(docs, pages, check)
}

// commands are the programs with a reference. fairlead-scheduler has kube-scheduler's flags, which kubernetes.io lists.
func commands() []*cobra.Command {
	streams, _, _, _ := genericiooptions.NewTestIOStreams()
	return []*cobra.Command{cli.NewCommand(streams), serverapp.NewCommand(), agentapp.NewCommand(), tunnelapiapp.NewCommand(), operator.NewCommand()}
}

// write makes the files in the directories what pages says.
func write(docs string, pages map[string][]byte, check bool) error {
	var stale []error
	for dir, pattern := range owned {
		have, err := filepath.Glob(filepath.Join(docs, dir, pattern))
		if err != nil {
			return err
		}
		for _, path := range have {
			if _, ok := pages[filepath.Join(dir, filepath.Base(path))]; ok {
				continue
			}
			if check {
				stale = append(stale, fmt.Errorf("%s belongs to no command", path))
			} else if err := os.Remove(path); err != nil {
				return err
			}
		}
	}
	for name, data := range pages {
		path := filepath.Join(docs, name)
		if have, err := os.ReadFile(path); err == nil && bytes.Equal(have, data) {
			continue
		}
		if check {
			stale = append(stale, fmt.Errorf("%s is out of date", path))
			continue
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			return err
		}
	}
	if len(stale) > 0 {
		return fmt.Errorf("%w\nRun make update-reference", errors.Join(stale...))
	}
	return nil
}
