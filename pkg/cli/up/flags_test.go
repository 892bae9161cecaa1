// SPDX-License-Identifier: Apache-2.0

package up

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/fairlead-dev/fairlead/pkg/cluster/providers"
	"github.com/fairlead-dev/fairlead/pkg/cluster/tinytest"
)

// A flag of one provider is refused for a cluster of the other, before anything
// is done.
func TestFlagsOfTheOtherProvider(t *testing.T) {
	for _, c := range []struct {
		args []string
		says []string
	}{
		{[]string{"--workers", "3"}, []string{"--workers", "--provider kind only", `cluster "dev" has provider embedded`}},
		{[]string{"--provider", "embedded", "--control-planes", "3"}, []string{"--control-planes", "--provider kind only"}},
		{[]string{"--image", "x"}, []string{"--image", "add --provider kind"}},
		{[]string{"--provider", "kind", "--nodes", "3"}, []string{"--nodes", "--provider embedded only"}},
		{[]string{"--provider", "kind", "--agents", "3"}, []string{"--agents", "--provider embedded only"}},
		{[]string{"--provider", "kind", "--component-dir", "/x"}, []string{"--component-dir"}},
		{[]string{"--provider", "vm"}, []string{`"vm"`, "embedded or kind"}},
		{[]string{"--provider", "kind", "--control-planes", "0"}, []string{"--control-planes 0", "at least 1"}},
		{[]string{"--provider", "kind", "--control-planes", "2"}, []string{"choose 1 or 3"}},
		{[]string{"--provider", "kind", "--workers", "-1"}, []string{"--workers -1", "0 to 50"}},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			state := t.TempDir()
			t.Setenv("XDG_STATE_HOME", state)
			t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "kubeconfig"))
			streams, _, _, _ := genericiooptions.NewTestIOStreams()
			cmd := NewCommand(streams, nil)
			cmd.SilenceErrors, cmd.SilenceUsage = true, true
			cmd.SetArgs(c.args)
			err := cmd.ExecuteContext(t.Context())
			if err == nil {
				t.Fatal("no error")
			}
			for _, text := range c.says {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("the error lacks %q: %v", text, err)
				}
			}
			if left, _ := os.ReadDir(state); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// TestFlagsOfAThirdProvider checks that the command has the flags of every provider that is
// registered, names it, and refuses its flags for clusters of others.
func TestFlagsOfAThirdProvider(t *testing.T) {
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"--files", "3"}, "--files works with --provider files only"},
		{[]string{"--provider", "files", "--nodes", "3"}, "--nodes works with --provider embedded only"},
		{[]string{"--provider", "files", "--files", "0"}, "--files 0: must be at least 1"},
		{[]string{"--provider", "files", "--fail"}, tinytest.ErrCreate.Error()},
		{[]string{"--provider", "files", "--files", "2", "--no-verify"}, ""},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			t.Setenv("XDG_STATE_HOME", t.TempDir())
			t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "kubeconfig"))
			streams, _, _, _ := genericiooptions.NewTestIOStreams()
			cmd := newCommand(streams, nil, append(providers.Settings(), tinytest.NewSettings()))
			if usage := cmd.Flags().Lookup("provider").Usage; !strings.Contains(usage, strings.Join(append(providers.Names(), tinytest.Name), " or ")) {
				t.Errorf("help of --provider: %s", usage)
			}
			cmd.SilenceErrors, cmd.SilenceUsage = true, true
			cmd.SetArgs(c.args)
			err := cmd.ExecuteContext(t.Context())
			if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want %q", err, c.says)
			}
		})
	}
}
