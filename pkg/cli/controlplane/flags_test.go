// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/fairlead-dev/fairlead/pkg/cli/certs"
	"github.com/fairlead-dev/fairlead/pkg/controlplane"
)

// TestUninstallSays: the message is correct, and does not mention direct connections if
// kube-apiserver still has an egress selector.
func TestUninstallSays(t *testing.T) {
	for want, r := range map[string]controlplane.Result{
		"The control plane dials nodes directly.\n":                                         {Changed: true},
		"kept: /x: mine\nThe control plane dials nodes directly.\n":                         {Changed: true, Left: []string{"/x: mine"}},
		"kube-apiserver still has --f=/mine, which differs from what fairlead installed.\n": {Changed: true, EgressSelector: "--f=/mine"},
	} {
		var out strings.Builder
		if err := printUninstalled(&out, r); err != nil || out.String() != want {
			t.Errorf("%v, %q, want %q", err, out.String(), want)
		}
	}
}

// TestTimeout: a timeout that leaves no time is rejected before any work, as in
// "fairlead install".
func TestTimeout(t *testing.T) {
	for _, limit := range []string{"0s", "-1s"} {
		for _, args := range [][]string{{"controlplane", "install"}, {"controlplane", "uninstall"}, {"certs", "renew"}} {
			streams, _, _, _ := genericiooptions.NewTestIOStreams()
			root := &cobra.Command{SilenceErrors: true, SilenceUsage: true}
			root.AddCommand(NewCommand(streams), certs.NewCommand(streams, LoadBundle))
			root.AddGroup(&cobra.Group{ID: "bundle"})
			root.SetArgs(append(args, "--root", t.TempDir(), "--timeout", limit))
			if err := root.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "--timeout "+limit) {
				t.Errorf("%v --timeout %s: %v", args, limit, err)
			}
		}
	}
}

// TestUnknownCheck: a misspelled check is refused with the checks that there are, instead
// of being ignored without a word.
func TestUnknownCheck(t *testing.T) {
	streams, _, _, _ := genericiooptions.NewTestIOStreams()
	root := &cobra.Command{SilenceErrors: true, SilenceUsage: true}
	root.AddCommand(NewCommand(streams))
	root.AddGroup(&cobra.Group{ID: "bundle"})
	root.SetArgs([]string{"controlplane", "install", "--root", t.TempDir(), "--ignore-preflight-errors", "server-counts"})
	err := root.ExecuteContext(t.Context())
	if err == nil || !strings.Contains(err.Error(), "server-counts") || !strings.Contains(err.Error(), controlplane.CheckServerCount+",") {
		t.Errorf("%v", err)
	}
}
