// SPDX-License-Identifier: Apache-2.0

// Package install is "fairlead install": it brings a bundle into a cluster. The
// work is done by pkg/install; here are flags and output.
package install

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/cli/bundleflag"
	"github.com/fairlead-dev/fairlead/pkg/cli/clusterchange"
	"github.com/fairlead-dev/fairlead/pkg/cli/operatorflags"
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
	// Operator installs the operator instead of a bundle.
	Operator bool

	operator operatorflags.Flags
	bundle   *v1alpha1.Bundle
}

// NewOptions returns options with their defaults.
func NewOptions(streams genericiooptions.IOStreams) *Options {
	return &Options{Options: clusterchange.New(streams), DryRun: dryNone}
}

const long = `Install or upgrade a bundle in a cluster: the second scheduler and the tunnel's
agents.

The command first tries all objects in a server-side dry run. If one of them cannot
be applied, it changes nothing. Then it uses server-side apply with field manager
"fairlead", deletes objects of an older bundle that this one lacks, and waits for
the rollout. A second run changes nothing. If a run was killed, the next run
completes it.

The command does not change objects and fields of other owners. It lists them;
--force-conflicts takes ownership.

"fairlead controlplane install" installs the API server's half of the tunnel.

With --operator the command installs the operator instead of a bundle: the
CustomResourceDefinitions, and a Deployment that keeps the cluster as the Bundle that
you create says. --dry-run shows the differences. The operator adopts what this
command has installed.`

const examples = `  # Show what would change, then install
  fairlead diff -f bundle.yaml
  fairlead install -f bundle.yaml

  # Try on the API server without changes
  fairlead install -f bundle.yaml --dry-run=server

  # Install the operator, and let it apply the bundle
  fairlead install --operator
  kubectl apply -f bundle.yaml`

// NewCommand makes the command.
func NewCommand(streams genericiooptions.IOStreams) *cobra.Command {
	o := NewOptions(streams)
	cmd := &cobra.Command{
		Use: "install", Short: "Install or upgrade a bundle in a cluster", Long: long, Example: examples, GroupID: "bundle", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.checkOperator(cmd.Flags()); err != nil {
				return err
			}
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
	bundleflag.Add(f, &o.File, bundleflag.Default)
	f.StringVar(&o.DryRun, "dry-run", o.DryRun, `"client" lists the objects and needs no cluster, "server" asks the API server; neither changes anything`)
	f.Lookup("dry-run").NoOptDefVal = dryServer
	f.BoolVar(&o.Force, "force-conflicts", false, "take ownership of conflicting objects and fields, and recreate objects with immutable changes")
	f.BoolVar(&o.Operator, "operator", false, "install the operator and its CustomResourceDefinitions instead of a bundle")
	o.operator.AddFlags(f)
	o.AddFlags(f, "wait for the rollout of all workloads", `"version,lease"`)
	return cmd
}

// Complete reads the bundle.
func (o *Options) Complete() error {
	if o.Operator {
		return nil
	}
	var err error
	o.bundle, err = bundleflag.Load(o.File, o.Streams.In, o.Streams.ErrOut)
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
	if o.Operator {
		return o.runOperator(ctx)
	}
	if o.DryRun == dryClient {
		rendered, err := bundle.Render(o.bundle)
		if err != nil {
			return err
		}
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
	findings, err := install.Preflight(ctx, target.Config, o.bundle, o.Force)
	if err != nil {
		return err
	}
	if err := o.Findings(findings); err != nil {
		return err
	}
	compute := func(ctx context.Context) ([]component.Object, error) {
		return install.Objects(ctx, target.Config, o.bundle, time.Now())
	}
	objects, err := compute(ctx)
	if err != nil {
		return err
	}
	result, err := install.Apply(ctx, target.Config, objects, install.Options{
		DryRun: o.DryRun == dryServer, Force: o.Force, Wait: o.Wait, Timeout: o.Timeout,
		Leases: install.LeasesOf(o.bundle), KeepTunnel: o.KeepTunnel(), Recompute: compute, Progress: o.Progress(),
	})
	suffix := ""
	if o.DryRun == dryServer {
		suffix = " (server dry run)"
	}
	return o.Done(ctx, result, suffix, err)
}
