// SPDX-License-Identifier: Apache-2.0

// Package up is the command "fairlead up".
package up

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/fairlead-dev/fairlead/pkg/cli/bundleflag"
	"github.com/fairlead-dev/fairlead/pkg/cli/ui"
	"github.com/fairlead-dev/fairlead/pkg/cluster"
	"github.com/fairlead-dev/fairlead/pkg/cluster/providers"
)

// VerifyFunc runs the quick checks against a context of a kubeconfig file.
type VerifyFunc func(ctx context.Context, streams genericiooptions.IOStreams, kubeconfig, kubeContext string) error

// Options are the command's flags.
type Options struct {
	genericiooptions.IOStreams

	Config   string
	NoVerify bool
	Quiet    bool
	Provider string
	Up       cluster.UpOptions
	Settings []cluster.Settings

	own      map[string]*pflag.FlagSet // flags of each provider alone
	verify   VerifyFunc
	provider cluster.Provider
}

const long = `Bring up a cluster on this machine, with a second scheduler next to the default
one and all traffic to nodes through a Konnectivity tunnel, then verify both.

The provider embedded, the default, runs ordinary processes: etcd, kube-apiserver,
kube-controller-manager, kube-scheduler and simulated nodes. The first run builds
Kubernetes from source, which takes some minutes, and caches the programs.

The provider kind runs containers in Docker, Podman or nerdctl, with real kubeadm,
kubelet and containerd.

The command starts a stopped cluster again, for example after a restart of the
machine, and does not change a running one.`

const example = `  fairlead up                        # cluster "dev" with 3 nodes
  fairlead up --name big --nodes 50  # a second cluster
  fairlead up --provider kind        # real nodes in containers
  fairlead up -f bundle.yaml         # your own settings; see "fairlead render"`

// NewCommand makes the command.
func NewCommand(streams genericiooptions.IOStreams, verify VerifyFunc) *cobra.Command {
	return newCommand(streams, verify, providers.Settings())
}

func newCommand(streams genericiooptions.IOStreams, verify VerifyFunc, all []cluster.Settings) *cobra.Command {
	o := &Options{IOStreams: streams, Settings: all, own: map[string]*pflag.FlagSet{}, verify: verify}
	cmd := &cobra.Command{
		Use: "up", Short: "Bring up a cluster and verify it", Long: long, Example: example,
		GroupID: "cluster", Args: cobra.NoArgs,
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
	o.addFlags(cmd.Flags())
	return cmd
}

func (o *Options) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.Up.Name, "name", cluster.DefaultName, "name of the cluster; its context is fairlead-NAME")
	var names []string
	for _, settings := range o.Settings {
		own := pflag.NewFlagSet(settings.ProviderName(), pflag.ContinueOnError)
		settings.AddFlags(own)
		own.VisitAll(f.AddFlag)
		names, o.own[settings.ProviderName()] = append(names, settings.ProviderName()), own
	}
	f.StringVar(&o.Provider, "provider", "", fmt.Sprintf("cluster provider: %s (default: the existing cluster's, or %s for a new one)", strings.Join(names, " or "), names[0]))
	bundleflag.Add(f, &o.Config, bundleflag.Default)
	f.BoolVar(&o.Up.Operator, "operator", false, "run the operator in a new cluster, and install its CustomResourceDefinitions")
	f.IntVar(&o.Up.APIServerPort, "api-server-port", 0, "loopback port of the API server (default: a free port, reused later)")
	f.BoolVar(&o.Up.Retain, "retain", false, "keep what a failed run created")
	f.BoolVar(&o.NoVerify, "no-verify", false, "skip the quick checks at the end")
	f.BoolVarP(&o.Quiet, "quiet", "q", false, "show failures only")
	f.StringVar(&o.Up.Kubeconfig, "kubeconfig", "", "kubeconfig file to write the context to (default: $KUBECONFIG or ~/.kube/config)")
}

// Complete reads the bundle file and finds the cluster's provider.
func (o *Options) Complete() error {
	o.Up.Progress = ui.NewProgress(o.ErrOut, o.Quiet)
	if o.Config != "" {
		var err error
		if o.Up.Bundle, err = bundleflag.Load(o.Config, o.In, o.ErrOut); err != nil {
			return err
		}
	}
	set, err := providers.New(o.Settings)
	if err != nil {
		return err
	}
	o.provider, err = set.ForUp(o.Up.Name, o.Provider)
	return err
}

// Validate rejects flags of another provider, and values of the provider's own flags
// with which no cluster can be created.
func (o *Options) Validate() error {
	has := o.provider.Name()
	for _, settings := range o.Settings {
		name, own := settings.ProviderName(), o.own[settings.ProviderName()]
		if name == has {
			if err := settings.Validate(own); err != nil {
				return err
			}
			continue
		}
		var wrong string
		own.VisitAll(func(f *pflag.Flag) {
			if f.Changed {
				wrong = f.Name
			}
		})
		if wrong != "" {
			return fmt.Errorf("--%s works with --provider %s only, and cluster %q has provider %s: remove the flag, or add --provider %s", wrong, name, o.Up.Name, has, name)
		}
	}
	return nil
}

// Run brings the cluster up and verifies it. A cluster that fails its checks is
// kept: it is needed to find out why.
func (o *Options) Run(ctx context.Context) error {
	if err := o.provider.Up(ctx, o.Up); err != nil {
		if ctx.Err() != nil && !errors.Is(err, cluster.ErrInterrupted) {
			return fmt.Errorf("interrupted: %w", err)
		}
		return err
	}
	kubeContext := cluster.ContextName(o.Up.Name)
	if !o.NoVerify {
		if err := o.runVerify(ctx, kubeContext); err != nil {
			return fmt.Errorf("%w\nthe cluster still runs: inspect it with \"fairlead status --name %s\", then retry with \"fairlead verify --context %s\"", err, o.Up.Name, kubeContext)
		}
	}
	if !o.Quiet {
		self := ui.Self()
		_, _ = fmt.Fprintf(o.Out, "\nCluster %s is up. Use it:\n\n  kubectl --context %s get nodes\n\nRemove it:\n\n  %s down --name %s\n", o.Up.Name, kubeContext, self, o.Up.Name)
	}
	return nil
}

// runVerify shows the checks as they are made, or, when quiet, only if one fails.
func (o *Options) runVerify(ctx context.Context, kubeContext string) error {
	streams := genericiooptions.IOStreams{In: o.In, Out: o.ErrOut, ErrOut: o.ErrOut}
	var kept bytes.Buffer
	if o.Quiet {
		streams.Out = &kept
	}
	err := o.verify(ctx, streams, o.Up.Kubeconfig, kubeContext)
	if err != nil {
		_, _ = io.WriteString(o.ErrOut, failures(kept.String()))
	}
	return err
}

// failures keeps the failed checks of a report, with what is indented below them.
func failures(report string) string {
	var out strings.Builder
	failed := false
	for line := range strings.Lines(report) {
		if !strings.HasPrefix(line, "    ") {
			failed = strings.HasPrefix(line, " ✗")
		}
		if failed {
			out.WriteString(line)
		}
	}
	return out.String()
}
