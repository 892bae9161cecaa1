// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/fairlead-dev/fairlead/pkg/cli/ui"
	"github.com/fairlead-dev/fairlead/pkg/controlplane"
)

const uninstallLong = `Remove what "fairlead controlplane install" installed: first kube-apiserver's part, so
that it dials nodes directly again, then the server and its files.

The command restores unchanged files to what they were before, byte for byte. It
removes the lines of the tunnel from kube-apiserver's manifest, even if you or
kubeadm wrote them. It keeps a copy of an edited server manifest, and keeps and
names other files that were changed.

The command rolls back an interrupted installation. If that restores an earlier
installation, run the command again to remove that one.`

// UninstallOptions are the flags of "uninstall".
type UninstallOptions struct {
	Change
}

func newUninstall(streams genericiooptions.IOStreams) *cobra.Command {
	o := &UninstallOptions{Change{Common: Common{Streams: streams}}}
	cmd := &cobra.Command{
		Use: "uninstall", Short: "Remove the tunnel from this control plane node", Long: uninstallLong, Args: cobra.NoArgs,
		Example: `  sudo fairlead controlplane uninstall --dry-run
  sudo fairlead controlplane uninstall`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.Complete(); err != nil {
				return err
			}
			if err := o.ValidateRun(); err != nil {
				return err
			}
			return o.Run(cmd.Context())
		},
	}
	o.AddFlags(cmd, "also remove it from kubeadm's stored configuration, once no other node uses it")
	return cmd
}

// Run uninstalls, or says what that would change.
func (o *UninstallOptions) Run(ctx context.Context) error {
	if o.DryRun {
		diffs, left, err := controlplane.PlanUninstall(ctx, o.Options)
		if err != nil {
			return err
		}
		return o.printPlan(diffs, left)
	}
	result, err := controlplane.Uninstall(ctx, o.Options)
	if errors.Is(err, controlplane.ErrNotInstalled) {
		return ui.Write(o.Streams.Out, o.Output, result, func(out io.Writer) error {
			text := "Nothing to do: fairlead has not installed the tunnel on this node."
			if provider := controlplane.Provider(o.Root); provider != "" {
				text = fmt.Sprintf("Nothing to do: this node was created by \"fairlead up --provider %s\"; \"fairlead down\" removes it.", provider)
			}
			_, err := fmt.Fprintln(out, text)
			return err
		})
	}
	if err != nil {
		return err
	}
	return ui.Write(o.Streams.Out, o.Output, result, func(out io.Writer) error { return printUninstalled(out, result) })
}

func printUninstalled(out io.Writer, r controlplane.Result) error {
	for _, l := range r.Left {
		if _, err := fmt.Fprintln(out, "kept:", l); err != nil {
			return err
		}
	}
	if r.EgressSelector != "" {
		_, err := fmt.Fprintf(out, "kube-apiserver still has %s, which differs from what fairlead installed.\n", r.EgressSelector)
		return err
	}
	_, err := fmt.Fprintln(out, "The control plane dials nodes directly.")
	return err
}
