// Package install is "fairlead install": it brings a bundle into a cluster. The
// work is done by pkg/install; here are flags and output.
package install

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/cli/clusterflags"
	"github.com/fairlead-dev/fairlead/pkg/cli/ui"
	"github.com/fairlead-dev/fairlead/pkg/install"
)

// Values of --dry-run.
const (
	dryNone   = "none"
	dryClient = "client"
	dryServer = "server"
)

// Options are the flags of the command. Make them with NewOptions.
type Options struct {
	Cluster clusterflags.Flags
	// File is the bundle configuration; "-" reads standard input, "" is the default bundle.
	File string
	// DryRun is none, client or server.
	DryRun string
	// Force takes over objects and fields of others.
	Force bool
	// Wait waits for rollouts, at most for Timeout.
	Wait    bool
	Timeout time.Duration
	// IgnorePreflight are IDs of findings to go on with.
	IgnorePreflight []string
	// Output is json, yaml, name or "".
	Output string
	Quiet  bool

	Streams genericiooptions.IOStreams
	bundle  *v1alpha1.Bundle
}

// NewOptions returns options with their defaults.
func NewOptions(streams genericiooptions.IOStreams) *Options {
	return &Options{Cluster: clusterflags.New(), DryRun: dryNone, Wait: true, Timeout: install.DefaultTimeout, Streams: streams}
}

const long = `Install a bundle into a cluster: the second scheduler and the tunnel's agents, or
upgrade one that is installed.

All objects are first tried by a server-side dry run: if one of them cannot be
applied, nothing is changed. Then they are applied by server-side apply with field
manager "fairlead"; what an older bundle had and this one lacks is deleted; and it
waits until everything is rolled out. Run it again and nothing changes; a run that
was killed is completed by the next one.

Objects and fields of others are left alone: they are listed with their owner.
--force-conflicts takes them over.

The API server's half of the tunnel is "fairlead controlplane install".`

const examples = `  # See what would happen, then install
  fairlead diff -f bundle.yaml
  fairlead install -f bundle.yaml

  # Ask the API server, change nothing
  fairlead install -f bundle.yaml --dry-run=server`

// NewCommand makes the command.
func NewCommand(streams genericiooptions.IOStreams) *cobra.Command {
	o := NewOptions(streams)
	cmd := &cobra.Command{
		Use: "install", Short: "Install or upgrade a bundle in a cluster", Long: long, Example: examples, GroupID: "bundle", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.Complete(); err != nil {
				return err
			}
			if err := o.Validate(); err != nil {
				return err
			}
			return o.Run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.StringVarP(&o.File, "filename", "f", "", `bundle configuration; "-" reads standard input (default: the default bundle)`)
	f.StringVar(&o.DryRun, "dry-run", o.DryRun, `"client" lists what would be applied without a cluster, "server" asks the API server; neither changes anything`)
	f.Lookup("dry-run").NoOptDefVal = dryServer
	f.BoolVar(&o.Force, "force-conflicts", false, "take over objects and fields of others, and make anew what cannot be changed")
	f.BoolVar(&o.Wait, "wait", o.Wait, "wait until all workloads are rolled out")
	f.DurationVar(&o.Timeout, "timeout", o.Timeout, "time limit of the whole command")
	f.StringSliceVar(&o.IgnorePreflight, "ignore-preflight-errors", nil, `go on in spite of these findings, for example "version,lease"; "all" means every one`)
	f.StringVarP(&o.Output, "output", "o", "", "json, yaml or name")
	f.BoolVarP(&o.Quiet, "quiet", "q", false, "show failures only")
	o.Cluster.AddFlags(f)
	return cmd
}

// Complete reads the bundle.
func (o *Options) Complete() error {
	var err error
	o.bundle, err = clusterflags.LoadBundle(o.File, o.Streams.In)
	return err
}

// Validate checks the flags.
func (o *Options) Validate() error {
	if !slices.Contains([]string{dryNone, dryClient, dryServer}, o.DryRun) {
		return fmt.Errorf("--dry-run %q: choose none, client or server", o.DryRun)
	}
	if o.Timeout <= 0 {
		return fmt.Errorf("--timeout %s: must be more than nothing", o.Timeout)
	}
	return ValidateOutput(o.Output)
}

// ValidateOutput checks --output of commands that print a Result.
func ValidateOutput(format string) error {
	if !slices.Contains([]string{"", "json", "yaml", "name"}, format) {
		return fmt.Errorf("--output %q: choose json, yaml or name", format)
	}
	return nil
}

// Run installs.
func (o *Options) Run(ctx context.Context) error {
	rendered, err := bundle.Render(o.bundle)
	if err != nil {
		return err
	}
	if o.DryRun == dryClient {
		result, err := install.Offline(rendered.Objects)
		if err != nil {
			return err
		}
		return PrintResult(o.Streams.Out, o.Output, result, " (client dry run)")
	}
	target, err := o.Cluster.Connect(ctx)
	if err != nil {
		return err
	}
	if !o.Quiet {
		_, _ = fmt.Fprintf(o.Streams.ErrOut, "Installing into %s\n", target)
	}
	findings, err := install.Preflight(ctx, target.Config, o.bundle)
	if err != nil {
		return err
	}
	if err := clusterflags.Findings(o.Streams.ErrOut, findings, o.IgnorePreflight); err != nil {
		return fmt.Errorf("nothing was changed: %w", err)
	}
	result, err := install.Apply(ctx, target.Config, rendered.Objects, install.Options{
		DryRun: o.DryRun == dryServer, Force: o.Force, Wait: o.Wait, Timeout: o.Timeout,
		Leases: install.LeasesOf(o.bundle), Progress: ui.NewProgress(o.Streams.ErrOut, o.Quiet),
	})
	for _, w := range result.Warnings {
		_, _ = fmt.Fprintf(o.Streams.ErrOut, " ! the API server warns: %s\n", w)
	}
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("interrupted: run it again to complete it: %w", err)
	}
	suffix := ""
	if o.DryRun == dryServer {
		suffix = " (server dry run)"
	}
	if o.Quiet && o.Output == "" {
		return err
	}
	if perr := PrintResult(o.Streams.Out, o.Output, result, suffix); err == nil {
		err = perr
	}
	return err
}

// PrintResult prints what happened in the format of --output; people get lines as
// kubectl prints them.
func PrintResult(out io.Writer, format string, result *install.Result, suffix string) error {
	if format == "name" {
		return printLines(out, result, func(o install.ObjectResult) string { return o.ShortName() })
	}
	return ui.Write(out, format, result, func(w io.Writer) error {
		return printLines(w, result, func(o install.ObjectResult) string {
			line := fmt.Sprintf("%s %s%s", o.ShortName(), o.Action, suffix)
			if o.Note != "" {
				line += ": " + o.Note
			}
			return line
		})
	})
}

func printLines(out io.Writer, result *install.Result, line func(install.ObjectResult) string) error {
	var b strings.Builder
	for _, o := range result.Objects {
		b.WriteString(line(o) + "\n")
	}
	_, err := io.WriteString(out, b.String())
	return err
}
