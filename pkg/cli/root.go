// SPDX-License-Identifier: Apache-2.0

// Package cli is the command line of fairlead. Each subcommand is a package of
// its own below; [NewCommand] puts them together and [Main] runs them.
package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/fairlead-dev/fairlead/pkg/check"
	"github.com/fairlead-dev/fairlead/pkg/cli/certs"
	"github.com/fairlead-dev/fairlead/pkg/cli/checkcmd"
	"github.com/fairlead-dev/fairlead/pkg/cli/clusterflags"
	"github.com/fairlead-dev/fairlead/pkg/cli/controlplane"
	"github.com/fairlead-dev/fairlead/pkg/cli/crd"
	"github.com/fairlead-dev/fairlead/pkg/cli/diff"
	"github.com/fairlead-dev/fairlead/pkg/cli/down"
	"github.com/fairlead-dev/fairlead/pkg/cli/images"
	"github.com/fairlead-dev/fairlead/pkg/cli/install"
	"github.com/fairlead-dev/fairlead/pkg/cli/internalcmd"
	"github.com/fairlead-dev/fairlead/pkg/cli/kubeconfig"
	"github.com/fairlead-dev/fairlead/pkg/cli/proxy"
	"github.com/fairlead-dev/fairlead/pkg/cli/render"
	"github.com/fairlead-dev/fairlead/pkg/cli/socks5"
	"github.com/fairlead-dev/fairlead/pkg/cli/status"
	"github.com/fairlead-dev/fairlead/pkg/cli/sysdump"
	"github.com/fairlead-dev/fairlead/pkg/cli/top"
	"github.com/fairlead-dev/fairlead/pkg/cli/ui"
	"github.com/fairlead-dev/fairlead/pkg/cli/uninstall"
	"github.com/fairlead-dev/fairlead/pkg/cli/up"
	"github.com/fairlead-dev/fairlead/pkg/cli/verify"
	versioncmd "github.com/fairlead-dev/fairlead/pkg/cli/version"
	"github.com/fairlead-dev/fairlead/pkg/cluster/providers"
	"github.com/fairlead-dev/fairlead/pkg/internal/version"
	"github.com/fairlead-dev/fairlead/pkg/interrupt"
)

const long = `Fairlead adds a second kube-scheduler and a Konnectivity tunnel to a cluster, and
verifies that both work.`

// NewCommand makes the root command.
func NewCommand(streams genericiooptions.IOStreams) *cobra.Command {
	root := &cobra.Command{
		Use: "fairlead", Short: "A second scheduler and a Konnectivity tunnel for your cluster", Long: long,
		Example: `  fairlead up                       # a cluster on this machine, with both
  fairlead install -f bundle.yaml   # into the cluster of the current context
  fairlead check                    # what is wrong with it`,
		SilenceUsage: true, SilenceErrors: true, Version: version.Get().String(),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	// Installed as kubectl-fairlead it is a plugin, and its help should show how it was called.
	if strings.HasPrefix(filepath.Base(os.Args[0]), "kubectl-") {
		root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl fairlead"}
	}
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.ErrOut)
	root.AddGroup(
		&cobra.Group{ID: "cluster", Title: "Clusters on this machine:"},
		&cobra.Group{ID: "bundle", Title: "Any cluster, and control plane nodes:"},
	)
	renderCmd, verifyCmd := render.NewCommand(streams), verify.NewCommand(streams, ownEnv)
	renderCmd.GroupID, verifyCmd.GroupID = "bundle", "bundle"
	root.AddCommand(
		up.NewCommand(streams, verifyContext), down.NewCommand(streams), status.NewCommand(streams),
		status.NewListCommand(streams), kubeconfig.NewCommand(streams),
		install.NewCommand(streams), diff.NewCommand(streams), uninstall.NewCommand(streams),
		controlplane.NewCommand(streams), certs.NewCommand(streams, controlplane.LoadBundle),
		renderCmd, verifyCmd, images.NewCommand(streams), proxy.NewCommand(streams), socks5.NewCommand(streams), crd.NewCommand(streams), versioncmd.NewCommand(streams), internalcmd.NewCommand(),
		checkcmd.NewCommand(streams, ownEnv), sysdump.NewCommand(streams, ownEnv), top.NewCommand(streams),
	)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w: see \"%s --help\"", err, cmd.CommandPath())
	})
	for _, cmd := range root.Commands() {
		if cmd.Flags().Lookup("name") != nil && cmd.Annotations[clusterflags.TakesCommand] == "" {
			cmd.Args = nameIsAFlag
		}
	}
	complete(root)
	wrapHelp(root, helpColumns(streams.Out))
	return root
}

// ownEnv lets verify ask whether a context belongs to a cluster that fairlead made.
func ownEnv(ctx context.Context, kubeconfig, kubeContext string) (*check.Env, error) {
	set, err := providers.New(providers.Settings())
	if err != nil {
		return nil, err
	}
	return set.CheckEnv(ctx, kubeconfig, kubeContext)
}

// verifyContext runs the quick checks for "fairlead up".
func verifyContext(ctx context.Context, streams genericiooptions.IOStreams, kubeconfig, kubeContext string) error {
	verify.SilenceClientLogs()
	o := verify.NewOptions(streams, ownEnv)
	o.Kubeconfig, o.Context = kubeconfig, kubeContext
	if err := o.Complete(); err != nil {
		return err
	}
	if err := o.Validate(); err != nil {
		return err
	}
	return o.Run(ctx)
}

// nameIsAFlag answers the likeliest mistake.
func nameIsAFlag(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%q is not expected here: did you mean \"%s --name %s\"?", args[0], cmd.CommandPath(), args[0])
	}
	return nil
}

// Main runs the command line and returns the exit code: 0, 1 for failures, 2
// for wrong usage of verify, 130 after an interrupt, 141 after a write to a
// closed output pipe. After an interrupt the running command cleans up; a
// second interrupt ends it at once. A command also cleans up when its output
// pipe is closed: Ctrl-C ends "tee" too, and the first message about the
// clean-up must not end the command.
func Main(args []string, streams genericiooptions.IOStreams) int {
	return run(NewCommand(streams), args, streams)
}

func run(root *cobra.Command, args []string, streams genericiooptions.IOStreams) int {
	ctx, stop := interrupt.Context(context.Background())
	defer stop()
	context.AfterFunc(ctx, stop)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	if ctx.Err() == nil && brokenOutput(err) {
		return 128 + int(syscall.SIGPIPE) // what shells report for "| head"
	}
	var command interface{ CommandExitCode() int }
	if errors.As(err, &command) {
		return command.CommandExitCode() // that of "proxy -- COMMAND", which has said what it had to
	}
	ui.PrintError(streams.ErrOut, err)
	if ctx.Err() != nil {
		return 130 // what shells report for an interrupted command
	}
	var code interface{ ExitCode() int }
	if errors.As(err, &code) {
		return code.ExitCode()
	}
	return 1
}
