// SPDX-License-Identifier: Apache-2.0

// Package status holds the commands "fairlead status" and "fairlead list".
package status

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/klog/v2"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/cli/bundleflag"
	"github.com/fairlead-dev/fairlead/pkg/cli/clusterflags"
	"github.com/fairlead-dev/fairlead/pkg/cli/ui"
	"github.com/fairlead-dev/fairlead/pkg/cluster"
	"github.com/fairlead-dev/fairlead/pkg/cluster/providers"
	"github.com/fairlead-dev/fairlead/pkg/observe"
	"github.com/fairlead-dev/fairlead/pkg/observe/overview"
	"github.com/fairlead-dev/fairlead/pkg/progress"
)

// ErrUnhealthy and ErrUnknown make "fairlead status" end with a non-zero exit code.
// The table shows what is wrong, and what could not be read.
var (
	ErrUnhealthy       = errors.New("not healthy")
	ErrUnknown   error = unknown{}
)

// unknown has an exit code of its own.
type unknown struct{}

func (unknown) Error() string { return "it is unknown whether the cluster is healthy" }

// ExitCode is for the main function.
func (unknown) ExitCode() int { return 3 }

type options struct {
	streams                             genericiooptions.IOStreams
	name, context, kubeconfig, filename string
	output                              string
	wait, pause                         time.Duration
	watch, named                        bool
	bundle                              *v1alpha1.Bundle // of --filename
	looks                               int
	counted                             *observe.Fact[observe.Scheduled]
}

// NewCommand makes "fairlead status".
func NewCommand(streams genericiooptions.IOStreams) *cobra.Command {
	o := &options{streams: streams, pause: refresh}
	cmd := &cobra.Command{
		Use: "status", Short: "Show the state of a cluster, its tunnel and its schedulers",
		Long: `Show a cluster on one screen: the tunnel's servers, agents, connections and dial
times, the second scheduler's replicas, leader, profiles and queue, Pods that wait,
and certificates. For a cluster of "fairlead up", the command also shows every
component (processes, or nodes and workloads): whether it is ready, how often it was
restarted, and its memory.

Without --context and --kubeconfig, this is the cluster of "fairlead up" with the
name of --name if there is one, else the current context.

Exit code: 0 all components, the tunnel and the second scheduler are ready, 1 one of
them is not, 3 it is unknown because this user may not read what decides, or it was
not read in time. One ready agent makes a tunnel ready, and one ready replica a
scheduler: others that are not ready are notes, for which --wait waits, too.`,
		Example: `  fairlead status                       # the cluster of "fairlead up", or the current context
  fairlead status --context prod -o wide
  fairlead status --watch
  fairlead status --name dev --wait 1m  # until everything is ready`,
		GroupID: "cluster", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.named = cmd.Flags().Changed("name")
			return o.run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.name, "name", cluster.DefaultName, "name of the cluster")
	f.StringVar(&o.context, "context", "", "kubeconfig context of any cluster")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig file (default: $KUBECONFIG, then ~/.kube/config)")
	bundleflag.Add(f, &o.filename, bundleflag.Created)
	f.StringVarP(&o.output, "output", "o", "", "json, yaml or wide")
	f.DurationVar(&o.wait, "wait", 0, "time to wait until everything is ready")
	f.BoolVarP(&o.watch, "watch", "w", false, "repeat until you interrupt the command")
	return cmd
}

func (o *options) run(ctx context.Context) error {
	if !slices.Contains([]string{"", "json", "yaml", wide}, o.output) {
		return fmt.Errorf("--output %q: choose json, yaml or wide", o.output)
	}
	if o.watch && o.wait > 0 {
		return errors.New("--watch and --wait: remove one of them")
	}
	klog.SetLogger(logr.Discard())
	if o.filename != "" {
		var err error
		if o.bundle, err = bundleflag.Load(o.filename, o.streams.In, o.streams.ErrOut); err != nil {
			return err
		}
	}
	take, err := o.chosen(ctx)
	if err != nil {
		return err
	}
	if o.watch {
		return o.watching(ctx, take, ui.StyleOf(o.streams.Out).Live)
	}
	return o.once(ctx, take)
}

// chosen decides which cluster is meant.
func (o *options) chosen(ctx context.Context) (taker, error) {
	if o.context != "" || o.kubeconfig != "" {
		if o.named {
			return nil, errors.New("--name is for clusters of \"fairlead up\" alone: remove it, or --context and --kubeconfig")
		}
		return o.any, nil
	}
	set, err := providers.New(providers.Settings())
	if err != nil {
		return nil, err
	}
	provider, err := set.Of(o.name)
	if err != nil {
		return nil, err
	}
	local := func(ctx context.Context) (look, error) { return o.local(ctx, provider, o.overview) }
	if _, err = provider.Status(ctx, o.name); !errors.Is(err, cluster.ErrNotFound) || o.named {
		return local, nil
	}
	var none *clusterflags.NoContextError
	if _, err := o.target(ctx, ""); errors.As(err, &none) && none.Empty {
		return local, nil // which says how to create a cluster
	}
	return o.any, nil
}

// local looks at a cluster that fairlead made: at its components, and with below at what they do.
func (o *options) local(ctx context.Context, provider cluster.Provider, below func(context.Context, string) (*overview.Overview, error)) (look, error) {
	s, err := provider.Status(ctx, o.name)
	if err != nil {
		return look{}, err
	}
	out := look{report: report{Components: s}}
	var unread error
	if s.Summarize().Running {
		out.report.Overview, unread = below(ctx, o.name)
	}
	view := out.report.Overview
	switch {
	case !s.Summarize().Healthy:
		out.verdict = fmt.Errorf("%w: %s", ErrUnhealthy, s.Problem())
	case unread != nil:
		out.verdict = unread
	case view != nil:
		out.verdict = judge(view)
	}
	out.human = func(w io.Writer) error {
		if err := s.WriteTable(w); err != nil || view == nil {
			return err
		}
		_, _ = fmt.Fprintln(w)
		return view.Write(w, o.style())
	}
	return out, nil
}

// NewListCommand makes "fairlead list".
func NewListCommand(streams genericiooptions.IOStreams) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List clusters", Long: "List the clusters that \"fairlead up\" created on this machine.",
		Example: "  fairlead list\n  fairlead list -o json", GroupID: "cluster", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			set, err := providers.New(providers.Settings())
			if err != nil {
				return err
			}
			list, err := set.List(cmd.Context())
			if err != nil {
				return err
			}
			return ui.Write(streams.Out, output, list, func(w io.Writer) error { return listTable(w, streams.ErrOut, list) })
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "json or yaml")
	return cmd
}

func listTable(out, errOut io.Writer, list []cluster.Status) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(errOut, "No clusters. Create one with \"fairlead up\".")
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "NAME\tPROVIDER\tSTATE\tNODES\tVERSION\tMEMORY\tAGE\tCONTEXT")
	for _, status := range list {
		s := status.Summarize()
		if s.KubernetesVersion == "" {
			_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t-\t-\t-\t-\t%s\n", s.Name, s.Provider, s.Health(), s.Context)
			continue
		}
		memory := "-"
		if s.RSSBytes > 0 {
			memory = progress.Mebibytes(s.RSSBytes)
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\n", s.Name, s.Provider, s.Health(), s.Nodes, s.KubernetesVersion, memory,
			duration.HumanDuration(time.Since(s.Created)), s.Context)
	}
	return w.Flush()
}
