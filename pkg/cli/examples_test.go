// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/fairlead-dev/fairlead/pkg/observe/rules"
	"github.com/fairlead-dev/fairlead/pkg/observe/rules/report"
)

// TestHelp proves that the help of every command has examples, that each example begins with a command that exists and uses flags that it has,
// and that no line is longer than 130 columns.
func TestHelp(t *testing.T) {
	root := NewCommand(genericiooptions.NewTestIOStreamsDiscard())
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			walk(sub)
		}
		// Those of completion are cobra's, and their long help has the commands.
		if c.Hidden || c.Name() == "help" || c.Name() == "completion" || c != root && (c.Parent().Name() == "completion" || c.Parent().Hidden) {
			return
		}
		if strings.TrimSpace(c.Example) == "" {
			t.Errorf("%s: no example", c.CommandPath())
		}
		for line := range strings.Lines(c.Long + "\n" + c.Example) {
			if len(strings.TrimSuffix(line, "\n")) > 130 {
				t.Errorf("%s: a line of %d columns: %s", c.CommandPath(), len(line), line)
			}
		}
		for line := range strings.Lines(c.Example) {
			command, _, _ := strings.Cut(line, "#")
			checkExample(t, root, c, strings.Fields(command))
		}
	}
	walk(root)
}

// TestFixes proves that each command of fairlead in the fix of a check exists, with its flags, and that those that install or compare have the user's
// bundle: without it they take the default one, which changes what is there.
func TestFixes(t *testing.T) {
	root := NewCommand(genericiooptions.NewTestIOStreamsDiscard())
	found := 0
	for _, r := range rules.All() {
		for _, line := range report.Commands(r.Fix) {
			command, _, _ := strings.Cut(line, "#")
			if words := strings.Fields(command); words[0] == "fairlead" {
				found++
				checkExample(t, root, root, words)
				if (slices.Contains(words, "install") || slices.Contains(words, "diff")) && !slices.Contains(words, "-f") && !slices.Contains(words, "--operator") {
					t.Errorf("%s: %s takes the default bundle: add -f bundle.yaml", r.ID, line)
				}
			}
		}
	}
	if found < 15 {
		t.Errorf("only %d commands", found)
	}
}

// checkExample looks at the first command of a line, up to a pipe, an argument separator or a new command.
func checkExample(t *testing.T, root, c *cobra.Command, words []string) {
	t.Helper()
	at := -1
	for i, w := range words {
		if w == "fairlead" || strings.HasSuffix(w, "(fairlead") {
			at = i
			break
		}
	}
	if at < 0 {
		return
	}
	found, _, err := root.Find(words[at+1:])
	if err != nil {
		t.Errorf("%s: example %v: %v", c.CommandPath(), words, err)
		return
	}
	for _, w := range words[at+1:] {
		if w == "|" || w == "--" || w == "&&" || strings.HasSuffix(w, ")") {
			return
		}
		name, _, _ := strings.Cut(strings.TrimPrefix(w, "--"), "=")
		if strings.HasPrefix(w, "--") && found.Flags().Lookup(name) == nil && found.InheritedFlags().Lookup(name) == nil {
			t.Errorf("%s: example %v: no flag --%s", c.CommandPath(), words, name)
		}
	}
}

// TestCompletion proves that values are completed: contexts from the kubeconfig, IDs and formats from the program.
func TestCompletion(t *testing.T) {
	t.Setenv("KUBECONFIG", writeKubeconfig(t, "prod-a", "prod-b"))
	for _, tc := range []struct {
		args []string
		want []string
	}{
		{[]string{"check", "--context", ""}, []string{"prod-a", "prod-b"}},
		{[]string{"status", "--context", ""}, []string{"prod-a", "prod-b"}},
		{[]string{"check", "--explain", "FL-KON-00"}, []string{"FL-KON-001"}},
		{[]string{"check", "-o", ""}, []string{"junit"}},
	} {
		streams, _, out, _ := genericiooptions.NewTestIOStreams()
		if code := Main(append([]string{"__complete"}, tc.args...), streams); code != 0 {
			t.Errorf("%v: exit code %d", tc.args, code)
		}
		for _, want := range tc.want {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%v: no %s in %s", tc.args, want, out)
			}
		}
	}
}
