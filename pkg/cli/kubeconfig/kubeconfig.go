// SPDX-License-Identifier: Apache-2.0

// Package kubeconfig is the command "fairlead kubeconfig".
package kubeconfig

import (
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/fairlead-dev/fairlead/pkg/cluster"
	"github.com/fairlead-dev/fairlead/pkg/cluster/providers"
)

// NewCommand makes the command.
func NewCommand(streams genericiooptions.IOStreams) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use: "kubeconfig", Short: "Print a cluster's kubeconfig",
		Long:    `Print the administrator's kubeconfig of a cluster, with the context fairlead-NAME.`,
		Example: "  fairlead kubeconfig > /tmp/dev.kubeconfig\n  kubectl --kubeconfig /tmp/dev.kubeconfig get nodes",
		GroupID: "cluster", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			set, err := providers.New(providers.Settings())
			if err != nil {
				return err
			}
			provider, err := set.Of(name)
			if err != nil {
				return err
			}
			data, err := provider.Kubeconfig(name)
			if err != nil {
				return err
			}
			_, err = streams.Out.Write(data)
			return err
		},
	}
	cmd.Flags().StringVar(&name, "name", cluster.DefaultName, "name of the cluster")
	return cmd
}
