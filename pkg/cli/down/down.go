// SPDX-License-Identifier: Apache-2.0

// Package down is the command "fairlead down".
package down

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/fairlead-dev/fairlead/pkg/cli/ui"
	"github.com/fairlead-dev/fairlead/pkg/cluster"
	"github.com/fairlead-dev/fairlead/pkg/cluster/providers"
)

// NewCommand makes the command.
func NewCommand(streams genericiooptions.IOStreams) *cobra.Command {
	var o cluster.DownOptions
	var quiet bool
	cmd := &cobra.Command{
		Use: "down", Short: "Remove a cluster",
		Example: `  fairlead down
  fairlead down --name big`,
		Long: `Stop all processes and containers of a cluster, and remove its files and its
context. The command also removes what a killed or failed "up" left. It keeps the
cache of built programs and all images.`,
		GroupID: "cluster", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			set, err := providers.New(providers.Settings())
			if err != nil {
				return err
			}
			provider, err := set.Of(o.Name)
			if err != nil {
				return err
			}
			o.Progress = ui.NewProgress(streams.ErrOut, quiet)
			err = provider.Down(cmd.Context(), o)
			if errors.Is(err, cluster.ErrNotFound) {
				_, _ = fmt.Fprintf(streams.ErrOut, "No cluster %q: nothing to remove.\n", o.Name)
				return nil
			}
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Name, "name", cluster.DefaultName, "name of the cluster")
	f.StringVar(&o.Kubeconfig, "kubeconfig", "", "kubeconfig file that has the context (default: $KUBECONFIG or ~/.kube/config)")
	f.BoolVarP(&quiet, "quiet", "q", false, "show failures only")
	return cmd
}
