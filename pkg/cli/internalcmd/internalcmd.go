// SPDX-License-Identifier: Apache-2.0

// Package internalcmd holds the hidden commands by which fairlead runs parts of
// an embedded cluster as processes of their own. They are no interface for
// people or scripts and may change in any release.
package internalcmd

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/pkg/cluster/embedded"
	"github.com/fairlead-dev/fairlead/pkg/cluster/embedded/nodegate"
)

// NewCommand makes "fairlead internal" with its subcommands.
func NewCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "internal", Hidden: true, Short: "Processes of embedded clusters"}
	cmd.AddCommand(newSupervise(), newNodeGate())
	return cmd
}

func newSupervise() *cobra.Command {
	return &cobra.Command{
		Use: "supervise DIR", Short: "Run the programs of a cluster", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			// The terminal of the command that started it may go away.
			signal.Ignore(syscall.SIGHUP)
			return embedded.Supervise(cmd.Context(), args[0])
		},
	}
}

func newNodeGate() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use: "node-gate", Short: "Admit only the API server to simulated nodes", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runNodeGate(cmd.Context(), file) },
	}
	cmd.Flags().StringVar(&file, "config", "", "configuration file")
	return cmd
}

func runNodeGate(ctx context.Context, file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("--config: %w", err)
	}
	var c nodegate.Config
	if err := json.Unmarshal(data, &c); err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	return nodegate.Run(ctx, c)
}
