// Package status holds the commands "fairlead status" and "fairlead list".
package status

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/fairlead-dev/fairlead/pkg/cli/ui"
	"github.com/fairlead-dev/fairlead/pkg/cluster/embedded"
	"github.com/fairlead-dev/fairlead/pkg/cluster/process"
)

// ErrUnhealthy makes "fairlead status" end with a non-zero exit code. What is
// wrong stands in the table.
var ErrUnhealthy = errors.New("not healthy")

// NewCommand makes "fairlead status".
func NewCommand(streams genericiooptions.IOStreams) *cobra.Command {
	var name, output string
	var wait time.Duration
	cmd := &cobra.Command{
		Use: "status", Short: "Show the processes of a cluster",
		Long: `Shows every process of a cluster: whether it is ready, how often it had to be
restarted, and its memory. The exit code is 1 unless all are ready.`,
		GroupID: "cluster", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			provider, err := embedded.NewProvider()
			if err != nil {
				return err
			}
			s, err := await(cmd.Context(), provider, name, wait)
			if err != nil {
				return err
			}
			if err := ui.Write(streams.Out, output, s, func(w io.Writer) error { return table(w, s) }); err != nil {
				return err
			}
			if !s.Healthy {
				return unhealthy(s)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&name, "name", embedded.DefaultName, "name of the cluster")
	cmd.Flags().StringVarP(&output, "output", "o", "", "json or yaml")
	cmd.Flags().DurationVar(&wait, "wait", 0, "wait up to this long until all processes are ready")
	return cmd
}

// await reads the status, again and again until it is healthy or the time is up.
func await(ctx context.Context, provider *embedded.Provider, name string, limit time.Duration) (embedded.Status, error) {
	deadline := time.Now().Add(limit)
	for {
		s, err := provider.Status(ctx, name)
		if err != nil || s.Healthy || !time.Now().Before(deadline) {
			return s, err
		}
		select {
		case <-ctx.Done():
			return s, ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func unhealthy(s embedded.Status) error {
	if !s.Running {
		return fmt.Errorf("%w: cluster %q is stopped: start it with \"fairlead up --name %s\"", ErrUnhealthy, s.Name, s.Name)
	}
	if len(s.Processes) == 0 {
		return fmt.Errorf("%w: the supervisor of cluster %q does not answer: \"fairlead down --name %s\" removes the cluster all the same", ErrUnhealthy, s.Name, s.Name)
	}
	for _, p := range s.Processes {
		if !p.Ready {
			return fmt.Errorf("%w: %s is %s; see %s", ErrUnhealthy, p.Name, describe(p), p.LogFile)
		}
	}
	return ErrUnhealthy
}

func describe(p process.Status) string {
	switch {
	case p.State == process.Running && p.Ready:
		return "ready"
	case p.State == process.Running:
		return "running, not ready"
	case p.Reason != "":
		return string(p.State) + " (" + p.Reason + ")"
	}
	return string(p.State)
}

func table(out io.Writer, s embedded.Status) error {
	nodes := fmt.Sprintf("%d nodes", s.Nodes)
	if s.Nodes == 1 {
		nodes = "1 node"
	}
	_, _ = fmt.Fprintf(out, "Cluster %s: %s, Kubernetes %s, %s\nContext: %s\nServer:  %s\nFiles:   %s\nLogs:    %s\n",
		s.Name, health(s), s.KubernetesVersion, nodes, s.Context, s.Server, s.Dir, filepath.Join(s.Dir, "logs"))
	if len(s.Processes) == 0 {
		return nil
	}
	live := 1
	for _, p := range s.Processes {
		if p.PID != 0 {
			live++
		}
	}
	_, _ = fmt.Fprintf(out, "Memory:  %s in %d processes\n\n", mebibytes(s.RSSBytes), live)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "PROCESS\tPID\tSTATE\tFOR\tRESTARTS\tMEMORY")
	for _, p := range s.Processes {
		pid, memory := "-", "-"
		if p.PID != 0 {
			pid, memory = fmt.Sprint(p.PID), mebibytes(p.RSSBytes)
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%s\n", p.Name, pid, describe(p),
			duration.HumanDuration(time.Since(p.Since)), p.Restarts, memory)
	}
	_, _ = fmt.Fprintf(w, "supervisor\t%d\tready\t\t\t%s\n", s.Supervisor, mebibytes(s.SupervisorRSSBytes))
	return w.Flush()
}

// health is the state of a cluster in one word.
func health(s embedded.Status) string {
	switch {
	case s.Healthy:
		return "ready"
	case s.Running:
		return "unhealthy"
	}
	return "stopped"
}

func mebibytes(n int64) string { return fmt.Sprintf("%d MiB", n>>20) }

// NewListCommand makes "fairlead list".
func NewListCommand(streams genericiooptions.IOStreams) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List clusters", GroupID: "cluster", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			provider, err := embedded.NewProvider()
			if err != nil {
				return err
			}
			list, err := provider.List(cmd.Context())
			if err != nil {
				return err
			}
			return ui.Write(streams.Out, output, list, func(w io.Writer) error { return listTable(w, streams.ErrOut, list) })
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "json or yaml")
	return cmd
}

func listTable(out, errOut io.Writer, list []embedded.Status) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(errOut, "No clusters. \"fairlead up\" makes one.")
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "NAME\tSTATE\tNODES\tVERSION\tMEMORY\tAGE\tCONTEXT")
	for _, s := range list {
		if s.Version == 0 {
			_, _ = fmt.Fprintf(w, "%s\tincomplete\t-\t-\t-\t-\t%s\n", s.Name, s.Context)
			continue
		}
		memory := "-"
		if s.Running {
			memory = mebibytes(s.RSSBytes)
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\t%s\t%s\n", s.Name, health(s), s.Nodes, s.KubernetesVersion, memory,
			duration.HumanDuration(time.Since(s.Created)), s.Context)
	}
	return w.Flush()
}
