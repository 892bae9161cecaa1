// SPDX-License-Identifier: Apache-2.0

// Package checkcmd is the command "fairlead check": it reads the cluster with package observe, and judges it with its package rules.
package checkcmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/fairlead-dev/fairlead/pkg/check"
	"github.com/fairlead-dev/fairlead/pkg/cli/bundleflag"
	"github.com/fairlead-dev/fairlead/pkg/cli/clusterflags"
	"github.com/fairlead-dev/fairlead/pkg/cli/ui"
	"github.com/fairlead-dev/fairlead/pkg/observe"
	"github.com/fairlead-dev/fairlead/pkg/observe/rules"
	"github.com/fairlead-dev/fairlead/pkg/observe/rules/report"
)

// Error ends the process with its code.
type Error struct {
	Code int
	Err  error
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// ExitCode is for the main function.
func (e *Error) ExitCode() int { return e.Code }

func usage(err error) error {
	if err == nil {
		return nil
	}
	return &Error{Code: 2, Err: err}
}

type options struct {
	streams  genericiooptions.IOStreams
	cluster  clusterflags.Flags
	source   check.EnvSource
	filename string
	output   string
	explain  string
	failOn   string
	list     bool
	judge    rules.Options
	limit    time.Duration
}

// NewCommand makes the command. The source knows local clusters.
func NewCommand(streams genericiooptions.IOStreams, source check.EnvSource) *cobra.Command {
	o := &options{streams: streams, cluster: clusterflags.New(), source: source}
	cmd := &cobra.Command{
		Use: "check", Short: "Find what is wrong with a cluster, its tunnel and its schedulers", GroupID: "bundle",
		Long: `Find what is wrong with a cluster, its tunnel and its schedulers, also with a tunnel
that runs upstream's programs. The command changes nothing: it reads objects,
certificates, health endpoints and metrics and, on a control plane node, files.
"fairlead verify" proves by calls that everything works.

Each check has a stable ID. A failed one shows what to do. "unknown" means that
what a check looks at could not be read.

Exit code: 0 nothing failed (see --fail-on), 1 a check failed, 2 wrong usage.`,
		Example: `  fairlead check                                   # an installed cluster
  fairlead check --pre -f bundle.yaml              # before an installation
  sudo fairlead check                              # on a control plane node: also its files
  fairlead check -o short --fail-on warning        # only what needs attention, for CI
  fairlead check --suppress FL-API-007 --suppress 'FL-EXT-001=*/old-webhook'
  fairlead check --explain FL-KON-005
  fairlead check --list`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	f := cmd.Flags()
	o.cluster.AddFlags(f)
	bundleflag.Add(f, &o.filename, bundleflag.Created)
	f.BoolVar(&o.judge.Before, "pre", false, "check whether the bundle can be installed, instead of an installed cluster")
	f.StringVarP(&o.output, "output", "o", "table", strings.Join(report.Formats, ", "))
	f.BoolVar(&o.list, "list", false, "list the checks and exit")
	f.StringVar(&o.explain, "explain", "", "explain the check with this ID and exit")
	f.StringSliceVar(&o.judge.Only, "only", nil, "show only the checks with these IDs, separated by commas, and the failed or unknown ones that keep them from being made; * is a wildcard")
	f.StringArrayVar(&o.judge.Suppress, "suppress", nil, "accept what the check ID, or ID=OBJECT, finds; * is a wildcard (can be repeated)")
	f.StringVar(&o.failOn, "fail-on", string(rules.Failed), "lowest severity that makes the exit code 1: failed, unknown or warning")
	f.DurationVar(&o.limit, "timeout", observe.ProbeLimit, "time limit of each single probe")
	ids := func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		var out []string
		for _, r := range rules.All() {
			out = append(out, r.ID+"\t"+r.Title)
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
	for _, name := range []string{"explain", "only", "suppress"} {
		_ = cmd.RegisterFlagCompletionFunc(name, ids)
	}
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(report.Formats, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("fail-on", cobra.FixedCompletions([]string{"failed", "unknown", "warning"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (o *options) validate() error {
	if !slices.Contains(report.Formats, o.output) {
		return fmt.Errorf("--output %q: choose one of %s", o.output, strings.Join(report.Formats, ", "))
	}
	if !slices.Contains([]string{"failed", "unknown", "warning"}, o.failOn) {
		return fmt.Errorf("--fail-on %q: choose failed, unknown or warning", o.failOn)
	}
	if o.limit <= 0 || o.limit > observe.ProbeLimit {
		return fmt.Errorf("--timeout %s: must be more than 0 and at most %s", o.limit, observe.ProbeLimit)
	}
	if err := o.judge.Validate(); err != nil {
		return fmt.Errorf("--only or --suppress: %w", err)
	}
	return nil
}

func (o *options) run(ctx context.Context) error {
	shown := ui.StyleOf(o.streams.Out)
	style := report.Style{Color: shown.Color, Width: shown.Width}
	if err := o.validate(); err != nil {
		return usage(err)
	}
	if o.list {
		return writeList(o.streams.Out, o.output)
	}
	if o.explain != "" {
		r, err := rules.Find(o.explain)
		if err != nil {
			return usage(err)
		}
		return report.Explain(o.streams.Out, r, style)
	}
	target, err := Target(ctx, o.cluster, o.source, o.filename, o.streams.In, o.streams.ErrOut)
	if err != nil {
		return usage(err)
	}
	target.Before, target.Limit = o.judge.Before, o.limit
	s, err := observe.Collect(ctx, target)
	if err != nil {
		return usage(err)
	}
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	r := rules.Judge(s, o.judge)
	if err := report.Write(o.streams.Out, o.output, r, style); err != nil {
		return err
	}
	if !r.Success(rules.Status(o.failOn)) {
		return &Error{Code: 1, Err: fmt.Errorf("%d of %d checks failed, %d are unknown, %d have warnings", r.Counts[rules.Failed], len(r.Checks), r.Counts[rules.Unknown], r.Counts[rules.Warning])}
	}
	return nil
}

func writeList(out io.Writer, format string) error {
	if format == "json" {
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		enc.SetEscapeHTML(false)
		return enc.Encode(rules.All())
	}
	return report.List(out, rules.All())
}

// Target finds the cluster, and what its provider and the bundle say of it. It does not talk to the cluster.
func Target(ctx context.Context, flags clusterflags.Flags, source check.EnvSource, filename string, in io.Reader, errOut io.Writer) (observe.Target, error) {
	var out observe.Target
	found, err := flags.Load()
	if err != nil {
		return out, err
	}
	out.Config, out.Context = found.Config, found.Context
	if source != nil {
		env, err := source(ctx, *flags.KubeConfig, found.Context)
		if err != nil {
			return out, fmt.Errorf("what is known of the local cluster: %w", err)
		}
		out.Env = env
	}
	if filename != "" {
		if out.Bundle, err = bundleflag.Load(filename, in, errOut); err != nil {
			return out, err
		}
	}
	return out, nil
}
