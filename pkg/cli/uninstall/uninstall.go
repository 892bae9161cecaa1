// SPDX-License-Identifier: Apache-2.0

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
	// Operator uninstalls the operator instead of a bundle.
	Operator bool
	// CustomResources says what becomes of the operator's definitions and of their objects:
	// refuse, keep or delete.
	CustomResources string
}

// Values of --custom-resources.
const (
	refuse = "refuse"
	keep   = "keep"
	del    = "delete"
)

// NewOptions returns options with their defaults.
func NewOptions(streams genericiooptions.IOStreams) *Options {
	return &Options{Options: clusterchange.New(streams), CustomResources: refuse}
}

const long = `Remove what "fairlead install" installed in a cluster: admission policies first, then
workloads, of these the tunnel's agents last, then the rest. The command finds the objects by its inventory and by the
managed fields that the API server records, so it needs no configuration. It keeps
objects of other owners, and a namespace that holds any.

Remove the API server's half of the tunnel first: run "fairlead controlplane
uninstall" on every control plane node.

With --operator the command removes the operator instead of a bundle. What the Bundle
brought into the cluster stays. If you delete a CustomResourceDefinition, Kubernetes deletes all objects
of its kind, so the command changes nothing while there is a Bundle, SchedulerProfile
or TunnelPool. With --custom-resources=keep the definitions and these objects stay; the API
server cannot read them in version v1alpha1 until the operator is back. With
--custom-resources=delete they are deleted, and so are the agents of TunnelPools.`

// NewCommand makes the command.
func NewCommand(streams genericiooptions.IOStreams) *cobra.Command {
	o := NewOptions(streams)
	cmd := &cobra.Command{
		Use: "uninstall", Short: "Remove a bundle from a cluster", Long: long, GroupID: "bundle", Args: cobra.NoArgs,
		Example: "  fairlead uninstall --dry-run\n  fairlead uninstall --yes",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.checkOperator(cmd.Flags().Changed("custom-resources")); err != nil {
				return err
			}
			if err := o.Validate(); err != nil {
				return err
			}
			return o.Run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.BoolVarP(&o.Yes, "yes", "y", false, "do not ask for confirmation")
	f.BoolVar(&o.DryRun, "dry-run", false, "show what would be deleted, and change nothing")
	f.BoolVar(&o.Operator, "operator", false, "remove the operator and its CustomResourceDefinitions instead of a bundle")
	f.StringVar(&o.CustomResources, "custom-resources", o.CustomResources, `with --operator: "refuse" to go on while there are Bundles, SchedulerProfiles or TunnelPools, "keep" them and the definitions, or "delete" them`)
	o.AddFlags(f, "wait until all objects are deleted", `"tunnel-in-use"`)
	return cmd
}

// errNotAsked is returned if there is no terminal to ask for confirmation.
var errNotAsked = errors.New("stdin is not a terminal: pass --yes to confirm or --dry-run to preview")

// Run uninstalls.
func (o *Options) Run(ctx context.Context) error {
	target, err := o.Cluster.Connect(ctx)
	if err != nil {
		return err
	}
	if o.Operator {
		if err := o.customObjects(ctx, target); err != nil {
			return err
		}
	}
	preview, err := install.Uninstall(ctx, target.Config, o.options(true))
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
	result, err := install.Uninstall(ctx, target.Config, o.options(false))
	if err == nil && o.Operator && o.CustomResources == del {
		err = o.pools(ctx, target, result)
	}
	if err == nil && len(result.Objects) == 0 && (!o.Quiet || o.Output != "") {
		_, _ = fmt.Fprintf(o.Streams.ErrOut, "Nothing is installed in %s\n", target)
	}
	return o.Done(ctx, result, "", err)
}

// mayGoOn looks at what the cluster would lose, and asks.
func (o *Options) mayGoOn(ctx context.Context, target clusterflags.Cluster, preview *install.Result) error {
	if !o.Operator {
		findings, err := install.PreflightUninstall(ctx, target.Config)
		if err != nil {
			return err
		}
		if err := o.Findings(findings); err != nil {
			return err
		}
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
	return ask(o.Streams.In, o.Streams.ErrOut, fmt.Sprintf("Delete these objects in %s? [y/N] ", target))
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
