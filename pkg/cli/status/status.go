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

	"github.com/fairlead-dev/fairlead/pkg/cli/bundleflag"
	"github.com/fairlead-dev/fairlead/pkg/cli/ui"
	"github.com/fairlead-dev/fairlead/pkg/cluster"
	"github.com/fairlead-dev/fairlead/pkg/cluster/providers"
)

// ErrUnhealthy makes "fairlead status" end with a non-zero exit code. The table
// shows what is wrong.
var ErrUnhealthy = errors.New("not healthy")

type options struct {
	streams                             genericiooptions.IOStreams
	name, context, kubeconfig, filename string
	output                              string
	wait                                time.Duration
	watch, named                        bool
}

// NewCommand makes "fairlead status".
func NewCommand(streams genericiooptions.IOStreams) *cobra.Command {
	o := &options{streams: streams}
	cmd := &cobra.Command{
		Use: "status", Short: "Show the state of a cluster, its tunnel and its schedulers",
		Long: `Show a cluster on one screen: the tunnel's servers, agents, connections and dial
times, the second scheduler's replicas, leader, profiles and queue, Pods that wait,
and certificates. For a cluster of "fairlead up", the command also shows every
component (processes, or nodes and workloads): whether it is ready, how often it was
restarted, and its memory.

Without --context and --kubeconfig, this is the cluster of "fairlead up" with the
name of --name if there is one, else the current context.

Exit code: 0 all components are ready, 1 otherwise.`,
		Example: `  fairlead status                       # the cluster of "fairlead up", or the current context
  fairlead status --context prod -o wide
  fairlead status --watch
  fairlead status --name dev --wait 1m  # until all components are ready`,
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
	f.DurationVar(&o.wait, "wait", 0, "time to wait until all components are ready")
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
	show, err := o.chosen(ctx)
	if err != nil {
		return err
	}
	if o.watch {
		return o.watching(ctx, show)
	}
	return show(ctx)
}

// chosen decides which cluster is meant.
func (o *options) chosen(ctx context.Context) (func(context.Context) error, error) {
	if o.context != "" || o.kubeconfig != "" {
		if o.named {
			return nil, errors.New("--name is for clusters of \"fairlead up\" alone: remove it, or --context and --kubeconfig")
		}
		return o.any, nil
	}
	set, err := providers.New(providers.Settings{})
	if err != nil {
		return nil, err
	}
	provider, err := set.Of(o.name)
	if err != nil {
		return nil, err
	}
	_, err = provider.Status(ctx, o.name)
	if errors.Is(err, cluster.ErrNotFound) && !o.named {
		if _, noContext := o.target(ctx); noContext == nil {
			return o.any, nil
		}
	}
	return func(ctx context.Context) error { return o.local(ctx, provider) }, nil
}

// local shows a cluster that fairlead made.
func (o *options) local(ctx context.Context, provider cluster.Provider) error {
	s, err := await(ctx, provider, o.name, o.wait)
	if err != nil {
		return err
	}
	table := func(w io.Writer) error {
		if err := s.WriteTable(w); err != nil || !s.Summarize().Running {
			return err
		}
		return o.below(ctx, o.name, w)
	}
	if err := o.write(s, table); err != nil {
		return err
	}
	if !s.Summarize().Healthy {
		return fmt.Errorf("%w: %s", ErrUnhealthy, s.Problem())
	}
	return nil
}

// await reads the status, again and again until it is healthy or the time is up.
func await(ctx context.Context, provider cluster.Provider, name string, limit time.Duration) (cluster.Status, error) {
	deadline := time.Now().Add(limit)
	for {
		s, err := provider.Status(ctx, name)
		if err != nil || s.Summarize().Healthy || !time.Now().Before(deadline) {
			return s, err
		}
		select {
		case <-ctx.Done():
			return s, ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// NewListCommand makes "fairlead list".
func NewListCommand(streams genericiooptions.IOStreams) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List clusters", Long: "List the clusters that \"fairlead up\" created on this machine.",
		Example: "  fairlead list\n  fairlead list -o json", GroupID: "cluster", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			set, err := providers.New(providers.Settings{})
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
			memory = cluster.Mebibytes(s.RSSBytes)
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\n", s.Name, s.Provider, s.Health(), s.Nodes, s.KubernetesVersion, memory,
			duration.HumanDuration(time.Since(s.Created)), s.Context)
	}
	return w.Flush()
}
