// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/cli/globalflag"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/component-base/featuregate"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/term"
	"k8s.io/component-base/version/verflag"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"

	"github.com/fairlead-dev/fairlead/pkg/daemon"
	"github.com/fairlead-dev/fairlead/pkg/scheduler/pluginargs"
	"github.com/fairlead-dev/fairlead/pkg/scheduler/politeevents"
)

const (
	// FlagEventDelay is the flag for the longest that an event waits for bindings.
	FlagEventDelay = "max-event-delay"
	// flushTimeout is how long a scheduler that is asked to stop goes on scheduling for the sake of events that wait.
	flushTimeout = 5 * time.Second
)

// program is kube-scheduler with its flags, in pieces: kube-scheduler's own command does not let anything happen between
// making the scheduler and running it.
type program struct {
	options    *options.Options
	plugins    []app.Option
	eventDelay time.Duration
}

// command has kube-scheduler's flags and one more; it does nothing yet.
func (p *program) command() *cobra.Command {
	cmd := &cobra.Command{
		Use: Name,
		Long: "Schedule Pods whose spec.schedulerName names one of its profiles, alongside the cluster's kube-scheduler. It is kube-scheduler\n" +
			"with plugins that know about other schedulers, failovers and the tunnel to the nodes.",
		Args:         noArguments,
		SilenceUsage: true,
	}
	sets := p.options.Flags
	own := sets.FlagSet("fairlead")
	own.DurationVar(&p.eventDelay, FlagEventDelay, pluginargs.DefaultMaxEventDelay,
		"The longest that an event such as Scheduled is held back while Pods are being bound; 0 writes events at once, as kube-scheduler does.")
	verflag.AddFlags(sets.FlagSet("global"))
	globalflag.AddGlobalFlags(sets.FlagSet("global"), cmd.Name(), logs.SkipLoggingConfigurationFlags())
	for _, set := range sets.FlagSets {
		cmd.Flags().AddFlagSet(set)
	}
	width, _, _ := term.TerminalSize(cmd.OutOrStdout())
	cliflag.SetUsageAndHelpFunc(cmd, *sets, width)
	_ = cmd.MarkFlagFilename("config", "yaml", "yml", "json") // for shells; it fails only without the flag
	return cmd
}

// noArguments lets empty ones pass, as kube-scheduler does: templates leave them behind.
func noArguments(cmd *cobra.Command, args []string) error {
	for _, arg := range args {
		if arg != "" {
			return fmt.Errorf("%s takes no arguments, got %q: flags begin with --", cmd.CommandPath(), arg)
		}
	}
	return nil
}

// run returns when the scheduler has ended; with leader election kube-scheduler ends the process itself.
func (p *program) run(cmd *cobra.Command, signals *daemon.Signals) error {
	verflag.PrintAndExitIfRequested()
	if p.eventDelay < 0 {
		return fmt.Errorf("--%s=%s: give a duration of 0 or more", FlagEventDelay, p.eventDelay)
	}
	gates := p.options.ComponentGlobalsRegistry.FeatureGateFor(basecompatibility.DefaultKubeComponent)
	if err := logsapi.ValidateAndApply(p.options.Logs, gates); err != nil {
		return fmt.Errorf("set up logging: %w", err)
	}
	cliflag.PrintFlags(cmd.Flags())
	gate := politeevents.NewGate(p.eventDelay)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go endWhenAsked(ctx, cancel, signals, gate)
	config, scheduler, err := app.Setup(ctx, p.options, p.plugins...)
	if err != nil {
		return err
	}
	if p.eventDelay > 0 {
		if err := politeevents.Install(ctx, gate, scheduler.Profiles, config.KubeConfig); err != nil {
			return err
		}
	}
	if mutable, ok := gates.(featuregate.MutableFeatureGate); ok {
		mutable.AddMetrics()
	}
	p.options.ComponentGlobalsRegistry.AddMetrics()
	return app.Run(ctx, config, scheduler)
}

// endWhenAsked ends a context after the first SIGTERM or SIGINT, when no event waits any more. The second one ends the
// process.
func endWhenAsked(ctx context.Context, cancel func(), signals *daemon.Signals, gate *politeevents.Gate) {
	select {
	case <-signals.First:
	case <-ctx.Done():
		return
	}
	go func() {
		<-signals.Second
		klog.InfoS("Stopped by a second signal")
		klog.FlushAndExit(klog.ExitFlushTimeout, 1)
	}()
	gate.Flush(flushTimeout)
	cancel()
}
