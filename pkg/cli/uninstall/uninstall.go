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
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/fairlead-dev/fairlead/pkg/cli/clusterflags"
	installcmd "github.com/fairlead-dev/fairlead/pkg/cli/install"
	"github.com/fairlead-dev/fairlead/pkg/cli/ui"
	"github.com/fairlead-dev/fairlead/pkg/install"
)

// Options are the flags of the command. Make them with NewOptions.
type Options struct {
	Cluster clusterflags.Flags
	// Yes does not ask.
	Yes bool
	// DryRun asks the API server and changes nothing.
	DryRun bool
	// Wait waits until all is gone, at most for Timeout.
	Wait    bool
	Timeout time.Duration
	// IgnorePreflight are IDs of findings to go on with.
	IgnorePreflight []string
	// Output is json, yaml, name or "".
	Output string
	Quiet  bool

	Streams genericiooptions.IOStreams
}

// NewOptions returns options with their defaults.
func NewOptions(streams genericiooptions.IOStreams) *Options {
	return &Options{Cluster: clusterflags.New(), Wait: true, Timeout: install.DefaultTimeout, Streams: streams}
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
	f.BoolVar(&o.Wait, "wait", o.Wait, "wait until everything is gone")
	f.DurationVar(&o.Timeout, "timeout", o.Timeout, "time limit of the whole command")
	f.StringSliceVar(&o.IgnorePreflight, "ignore-preflight-errors", nil, `go on in spite of these findings, for example "tunnel-in-use"`)
	f.StringVarP(&o.Output, "output", "o", "", "json, yaml or name")
	f.BoolVarP(&o.Quiet, "quiet", "q", false, "show failures only")
	o.Cluster.AddFlags(f)
	return cmd
}

// Validate checks the flags.
func (o *Options) Validate() error {
	if o.Timeout <= 0 {
		return fmt.Errorf("--timeout %s: must be more than nothing", o.Timeout)
	}
	return installcmd.ValidateOutput(o.Output)
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
		return installcmd.PrintResult(o.Streams.Out, o.Output, preview, " (server dry run)")
	}
	if len(preview.Objects) > 0 {
		if err := o.mayGoOn(ctx, target, preview); err != nil {
			return err
		}
	}
	result, err := install.Uninstall(ctx, target.Config, install.UninstallOptions{
		Wait: o.Wait, Timeout: o.Timeout, Progress: ui.NewProgress(o.Streams.ErrOut, o.Quiet),
	})
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("interrupted: run it again to complete it: %w", err)
	}
	return errors.Join(err, o.print(target, result, err))
}

func (o *Options) print(target clusterflags.Cluster, result *install.Result, err error) error {
	for _, w := range result.Warnings {
		_, _ = fmt.Fprintf(o.Streams.ErrOut, " ! %s\n", w)
	}
	if o.Quiet && o.Output == "" {
		return nil
	}
	if err == nil && len(result.Objects) == 0 {
		_, _ = fmt.Fprintf(o.Streams.ErrOut, "Nothing is installed in %s\n", target)
	}
	return installcmd.PrintResult(o.Streams.Out, o.Output, result, "")
}

// mayGoOn looks at what the cluster would lose, and asks.
func (o *Options) mayGoOn(ctx context.Context, target clusterflags.Cluster, preview *install.Result) error {
	findings, err := install.PreflightUninstall(ctx, target.Config)
	if err != nil {
		return err
	}
	if err := clusterflags.Findings(o.Streams.ErrOut, findings, o.IgnorePreflight); err != nil {
		return fmt.Errorf("nothing was changed: %w", err)
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
	if err := installcmd.PrintResult(o.Streams.ErrOut, "", preview, ""); err != nil {
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
