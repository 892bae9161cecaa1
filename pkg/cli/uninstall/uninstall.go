// Package uninstall is "fairlead uninstall": it takes a bundle out of a cluster.
package uninstall

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/fairlead-dev/fairlead/pkg/cli/clusterchange"
	"github.com/fairlead-dev/fairlead/pkg/cli/clusterflags"
	"github.com/fairlead-dev/fairlead/pkg/install"
)

// Options are the flags of the command. Make them with NewOptions.
type Options struct {
	clusterchange.Options
	// Yes does not ask.
	Yes bool
	// DryRun asks the API server and changes nothing.
	DryRun bool
}

// NewOptions returns options with their defaults.
func NewOptions(streams genericiooptions.IOStreams) *Options {
	return &Options{Options: clusterchange.New(streams)}
}

const long = `Uninstall what "fairlead install" has brought into a cluster: admission policies,
then workloads, then the rest. What is installed is found by the inventory and by
what the API server recorded as applied by fairlead, so no configuration is needed.
Objects of others stay, and so does a namespace that holds any.

The API server's half of the tunnel must be gone before: "fairlead controlplane
uninstall" on every control plane node.`

// NewCommand makes the command.
func NewCommand(streams genericiooptions.IOStreams) *cobra.Command {
	o := NewOptions(streams)
	cmd := &cobra.Command{
		Use: "uninstall", Short: "Take a bundle out of a cluster", Long: long, GroupID: "bundle", Args: cobra.NoArgs,
		Example: "  fairlead uninstall --dry-run\n  fairlead uninstall --yes",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.Validate(); err != nil {
				return err
			}
			return o.Run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.BoolVarP(&o.Yes, "yes", "y", false, "do not ask")
	f.BoolVar(&o.DryRun, "dry-run", false, "show what would be deleted, and change nothing")
	o.AddFlags(f, "wait until everything is gone", `"tunnel-in-use"`)
	return cmd
}

// errNotAsked is returned where nobody can answer.
var errNotAsked = errors.New("nobody can be asked here: --yes uninstalls, --dry-run shows what")

// Run uninstalls.
func (o *Options) Run(ctx context.Context) error {
	target, err := o.Cluster.Connect(ctx)
	if err != nil {
		return err
	}
	preview, err := install.Uninstall(ctx, target.Config, install.UninstallOptions{DryRun: true, Timeout: o.Timeout})
	if err != nil {
		return err
	}
	if o.DryRun {
		return o.Print(preview, " (server dry run)")
	}
	if len(preview.Objects) > 0 {
		if err := o.mayGoOn(ctx, target, preview); err != nil {
			return err
		}
	}
	result, err := install.Uninstall(ctx, target.Config, install.UninstallOptions{
		Wait: o.Wait, Timeout: o.Timeout, Progress: o.Progress(),
	})
	if err == nil && len(result.Objects) == 0 && (!o.Quiet || o.Output != "") {
		_, _ = fmt.Fprintf(o.Streams.ErrOut, "Nothing is installed in %s\n", target)
	}
	return o.Done(ctx, result, "", err)
}

// mayGoOn looks at what the cluster would lose, and asks.
func (o *Options) mayGoOn(ctx context.Context, target clusterflags.Cluster, preview *install.Result) error {
	findings, err := install.PreflightUninstall(ctx, target.Config)
	if err != nil {
		return err
	}
	if err := o.Findings(findings); err != nil {
		return err
	}
	return o.confirm(target, preview)
}

// confirm asks, unless told not to.
func (o *Options) confirm(target clusterflags.Cluster, preview *install.Result) error {
	if o.Yes {
		return nil
	}
	in, ok := o.Streams.In.(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) {
		return errNotAsked
	}
	if err := clusterchange.Print(o.Streams.ErrOut, "", preview, ""); err != nil {
		return err
	}
	return ask(o.Streams.In, o.Streams.ErrOut, fmt.Sprintf("Do all this in %s? [y/N] ", target))
}

// ErrDeclined is returned when the answer is not yes.
var ErrDeclined = errors.New("nothing was changed")

func ask(in io.Reader, out io.Writer, question string) error {
	_, _ = io.WriteString(out, question)
	answer, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return ErrDeclined
}
