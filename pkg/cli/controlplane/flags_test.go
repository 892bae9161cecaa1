package controlplane

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/fairlead-dev/fairlead/pkg/cli/certs"
	"github.com/fairlead-dev/fairlead/pkg/controlplane"
)

// TestUninstallSays: what is true, and nothing of direct dials where kube-apiserver still
// has an egress selector.
func TestUninstallSays(t *testing.T) {
	for want, r := range map[string]controlplane.Result{
		"The control plane dials nodes directly.\n":                                    {Changed: true},
		"left: /x: mine\nThe control plane dials nodes directly.\n":                    {Changed: true, Left: []string{"/x: mine"}},
		"kube-apiserver still has --f=/mine, which is not as fairlead installed it.\n": {Changed: true, EgressSelector: "--f=/mine"},
	} {
		var out strings.Builder
		if err := printUninstalled(&out, r); err != nil || out.String() != want {
			t.Errorf("%v, %q, want %q", err, out.String(), want)
		}
	}
}

// TestTimeout: a time limit that lets nothing happen is refused, as "fairlead
// install" does, before anything is looked at.
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
