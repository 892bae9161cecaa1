// Package install is "fairlead install": it brings a bundle into a cluster. The
// work is done by pkg/install; here are flags and output.
package install

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/cli/clusterchange"
	"github.com/fairlead-dev/fairlead/pkg/cli/clusterflags"
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
	clusterchange.Options
	// File is the bundle configuration; "-" reads standard input, "" is the default bundle.
	File string
	// DryRun is none, client or server.
	DryRun string
	// Force takes over objects and fields of others.
	Force bool

	bundle *v1alpha1.Bundle
}

// NewOptions returns options with their defaults.
func NewOptions(streams genericiooptions.IOStreams) *Options {
	return &Options{Options: clusterchange.New(streams), DryRun: dryNone}
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
	o.AddFlags(f, "wait until all workloads are rolled out", `"version,lease"`)
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
	return o.Options.Validate()
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
		return o.Print(result, " (client dry run)")
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
	if err := o.Findings(findings); err != nil {
		return err
	}
	result, err := install.Apply(ctx, target.Config, rendered.Objects, install.Options{
		DryRun: o.DryRun == dryServer, Force: o.Force, Wait: o.Wait, Timeout: o.Timeout,
		Leases: install.LeasesOf(o.bundle), Progress: o.Progress(),
	})
	suffix := ""
	if o.DryRun == dryServer {
		suffix = " (server dry run)"
	}
	return o.Done(ctx, result, suffix, err)
}
