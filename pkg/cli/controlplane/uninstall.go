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

const uninstallLong = `Take away what "fairlead controlplane install" has brought: first kube-apiserver's
part, so that it dials nodes directly again, then the server and its files.

Files that are as they were installed become what they were before, byte for byte.
kube-apiserver's manifest loses the lines of the tunnel, also where it was edited
since or kubeadm wrote them; a server manifest that was edited is kept aside; other
files that were changed since are left and named.

An installation that was interrupted is put back; if one from before it comes back
by that, it stays, and another run takes it away.`

// UninstallOptions are the flags of "uninstall".
type UninstallOptions struct {
	Change
}

func newUninstall(streams genericiooptions.IOStreams) *cobra.Command {
	o := &UninstallOptions{Change{Common: Common{Streams: streams}}}
	cmd := &cobra.Command{
		Use: "uninstall", Short: "Take the tunnel out of this machine's control plane", Long: uninstallLong, Args: cobra.NoArgs,
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
	o.AddFlags(cmd, "also take it out of kubeadm's stored configuration, once no other node uses it")
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
				text = fmt.Sprintf("Nothing to do: this node was made by \"fairlead up --provider %s\"; \"fairlead down\" removes it.", provider)
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
		if _, err := fmt.Fprintln(out, "left:", l); err != nil {
			return err
		}
	}
	if r.EgressSelector != "" {
		_, err := fmt.Fprintf(out, "kube-apiserver still has %s, which is not as fairlead installed it.\n", r.EgressSelector)
		return err
	}
	_, err := fmt.Fprintln(out, "The control plane dials nodes directly.")
	return err
}
