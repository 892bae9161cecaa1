// Package status holds the commands "fairlead status" and "fairlead list".
package status

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/fairlead-dev/fairlead/pkg/cli/ui"
	"github.com/fairlead-dev/fairlead/pkg/cluster"
	"github.com/fairlead-dev/fairlead/pkg/cluster/providers"
)

// ErrUnhealthy makes "fairlead status" end with a non-zero exit code. What is
// wrong stands in the table.
var ErrUnhealthy = errors.New("not healthy")

// NewCommand makes "fairlead status".
func NewCommand(streams genericiooptions.IOStreams) *cobra.Command {
	var name, output string
	var wait time.Duration
	cmd := &cobra.Command{
		Use: "status", Short: "Show the parts of a cluster",
		Long: `Shows every part of a cluster, processes or nodes and workloads: whether it is
ready, how often it had to be restarted, and its memory. The exit code is 1
unless all are ready.`,
		GroupID: "cluster", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			set, err := providers.New(providers.Settings{})
			if err != nil {
				return err
			}
			provider, err := set.Of(name)
			if err != nil {
				return err
			}
			s, err := await(cmd.Context(), provider, name, wait)
			if err != nil {
				return err
			}
			if err := ui.Write(streams.Out, output, s, s.WriteTable); err != nil {
				return err
			}
			if !s.Summarize().Healthy {
				return fmt.Errorf("%w: %s", ErrUnhealthy, s.Problem())
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&name, "name", cluster.DefaultName, "name of the cluster")
	cmd.Flags().StringVarP(&output, "output", "o", "", "json or yaml")
	cmd.Flags().DurationVar(&wait, "wait", 0, "wait up to this long until all parts are ready")
	return cmd
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
		Use: "list", Aliases: []string{"ls"}, Short: "List clusters", GroupID: "cluster", Args: cobra.NoArgs,
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
		_, err := fmt.Fprintln(errOut, "No clusters. \"fairlead up\" makes one.")
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
