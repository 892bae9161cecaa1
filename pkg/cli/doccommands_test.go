// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/fairlead-dev/fairlead/e2e/doccommands"
)

const repository = "../.."

// docPages are the pages whose commands people copy.
func docPages(t *testing.T) []string {
	t.Helper()
	pages, err := doccommands.Pages(repository)
	if err != nil {
		t.Fatal(err)
	}
	return pages
}

// TestDocCommands: every command of fairlead and make in a shell block or in the text of the documentation exists, with its
// subcommands, flags and number of arguments. So does every directory that a block has "go test" run.
func TestDocCommands(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(repository, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	for _, page := range docPages(t) {
		data, err := os.ReadFile(filepath.Join(repository, page))
		if err != nil {
			t.Fatal(err)
		}
		blocks := doccommands.ShellLines(string(data))
		for i, line := range append(blocks, inlineCommands(string(data))...) {
			for _, words := range doccommands.SimpleCommands(line) {
				kind, err := checkCommand(words, string(makefile))
				found[kind]++
				if named := i >= len(blocks) && err != nil && strings.Contains(err.Error(), "flag needs an argument"); named {
					continue // text may name a flag without its value
				}
				if err != nil {
					t.Errorf("%s: %s\n\t%v", page, line, err)
				}
			}
		}
	}
	for kind, least := range map[string]int{"fairlead": 100, "make": 30, "go": 5} {
		if found[kind] < least {
			t.Errorf("found only %d commands of %s: %v", found[kind], kind, found)
		}
	}
}

// TestDocCommandsFindMistakes: the checks above find what is wrong with a command.
func TestDocCommandsFindMistakes(t *testing.T) {
	const makefile = "build: deps\n"
	for line, bad := range map[string]bool{
		"fairlead up --name x":                      false,
		"fairlead upp":                              true,
		"fairlead up --no-such-flag":                true,
		"sudo bin/fairlead controlplane status":     false,
		"fairlead controlplane statuses":            true,
		"fairlead version surplus":                  true,
		"fairlead proxy -- curl --anything /":       false,
		"X=1 make build VERSION=1 | tee log":        false,
		"cd x && make nothing":                      true,
		"source <(bin/fairlead completion bash)":    false,
		"source <(bin/fairlead completion bourne)":  true,
		"go test ./pkg/cli -run X":                  false,
		"go test ./pkg/gone":                        true,
		"kubectl get pods # then fairlead nonsense": false,
	} {
		var err error
		for _, words := range doccommands.SimpleCommands(line) {
			if _, e := checkCommand(words, makefile); e != nil {
				err = e
			}
		}
		if (err != nil) != bad {
			t.Errorf("%s: %v", line, err)
		}
	}
}

var inline = regexp.MustCompile("`((?:sudo )?(?:bin/)?(?:fairlead|make) [^`]+)`")

// inlineCommands returns the commands in the text.
func inlineCommands(text string) []string {
	var lines []string
	for _, m := range inline.FindAllStringSubmatch(text, -1) {
		lines = append(lines, strings.ReplaceAll(m[1], "\n", " "))
	}
	return lines
}

// checkCommand says what kind of command it is, and what is wrong with it.
func checkCommand(words []string, makefile string) (kind string, err error) {
	words = doccommands.Program(words)
	if len(words) == 0 {
		return "", nil
	}
	switch name := words[0]; {
	case filepath.Base(name) == "fairlead":
		return "fairlead", checkFairlead(words[1:])
	case name == "kubectl" && len(words) > 1 && words[1] == "fairlead":
		return "fairlead", checkFairlead(words[2:])
	case name == "make":
		return "make", checkMake(words[1:], makefile)
	case name == "go":
		return "go", checkGo(words[1:])
	}
	return "", nil
}

func checkFairlead(args []string) error {
	streams, _, _, _ := genericiooptions.NewTestIOStreams()
	root := NewCommand(streams)
	root.InitDefaultCompletionCmd("completion")
	cmd, rest, err := root.Find(args)
	if err != nil {
		return err
	}
	cmd.InitDefaultHelpFlag()
	if err := cmd.ParseFlags(rest); err != nil {
		return fmt.Errorf("%s: %w", cmd.CommandPath(), err)
	}
	if cmd.HasSubCommands() && cmd.Flags().NArg() > 0 && cmd.Flags().Arg(0) != "" {
		return fmt.Errorf("%s has no command %q", cmd.CommandPath(), cmd.Flags().Arg(0))
	}
	if help, _ := cmd.Flags().GetBool("help"); help {
		return nil
	}
	return validateArgs(cmd)
}

func validateArgs(cmd *cobra.Command) error {
	if err := cmd.ValidateArgs(cmd.Flags().Args()); err != nil {
		return fmt.Errorf("%s: %w", cmd.CommandPath(), err)
	}
	return nil
}

func checkMake(args []string, makefile string) error {
	for _, target := range args {
		if strings.HasPrefix(target, "-") || strings.Contains(target, "=") {
			continue
		}
		if !regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(target) + `:`).MatchString(makefile) {
			return fmt.Errorf("the Makefile has no target %s", target)
		}
	}
	return nil
}

func checkGo(args []string) error {
	if len(args) == 0 || !slices.Contains([]string{"test", "run", "vet"}, args[0]) {
		return nil
	}
	for _, arg := range args[1:] {
		dir, ok := strings.CutPrefix(arg, "./")
		if !ok {
			continue
		}
		if _, err := os.Stat(filepath.Join(repository, strings.TrimSuffix(dir, "/..."))); err != nil {
			return fmt.Errorf("there is no package %s", arg)
		}
	}
	return nil
}
