// SPDX-License-Identifier: Apache-2.0

// Package clusterchange is what "fairlead install" and "fairlead uninstall" have in
// common: flags, preflight findings, and how a result is shown.
package clusterchange

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/fairlead-dev/fairlead/pkg/cli/clusterflags"
	"github.com/fairlead-dev/fairlead/pkg/cli/ui"
	"github.com/fairlead-dev/fairlead/pkg/install"
	"github.com/fairlead-dev/fairlead/pkg/progress"
)

// Options are the common flags. Make them with New.
type Options struct {
	Cluster clusterflags.Flags
	// Wait waits for the end of what was begun, at most for Timeout.
	Wait    bool
	Timeout time.Duration
	// IgnorePreflight are IDs of findings to go on with.
	IgnorePreflight []string
	// Output is json, yaml, name or "".
	Output string
	Quiet  bool

	Streams genericiooptions.IOStreams
}

// New returns options with their defaults.
func New(streams genericiooptions.IOStreams) Options {
	return Options{Cluster: clusterflags.New(), Wait: true, Timeout: install.DefaultTimeout, Streams: streams}
}

// AddFlags binds them; wait says what is waited for, findings names some.
func (o *Options) AddFlags(f *pflag.FlagSet, wait, findings string) {
	f.BoolVar(&o.Wait, "wait", o.Wait, wait)
	f.DurationVar(&o.Timeout, "timeout", o.Timeout, "time limit of the whole command")
	f.StringSliceVar(&o.IgnorePreflight, "ignore-preflight-errors", nil, `preflight checks whose errors are shown as warnings, for example `+findings+`; "all" ignores every check`)
	f.StringVarP(&o.Output, "output", "o", "", "json, yaml or name")
	f.BoolVarP(&o.Quiet, "quiet", "q", false, "show failures only")
	o.Cluster.AddFlags(f)
}

// Validate checks the flags.
func (o *Options) Validate() error {
	if o.Timeout <= 0 {
		return fmt.Errorf("--timeout %s: must be greater than 0", o.Timeout)
	}
	if !slices.Contains([]string{"", "json", "yaml", "name"}, o.Output) {
		return fmt.Errorf("--output %q: choose json, yaml or name", o.Output)
	}
	return nil
}

// Progress is where the work reports what it does.
func (o *Options) Progress() progress.Reporter { return ui.NewProgress(o.Streams.ErrOut, o.Quiet) }

// Findings shows what the preflight has found; its error says what keeps the
// command from going on.
func (o *Options) Findings(findings []install.Finding) error {
	if err := clusterflags.Findings(o.Streams.ErrOut, findings, o.IgnorePreflight); err != nil {
		return fmt.Errorf("nothing was changed: %w", err)
	}
	return nil
}

// KeepTunnel reports whether the run must not cut a tunnel in use.
func (o *Options) KeepTunnel() bool {
	return !clusterflags.Ignores(o.IgnorePreflight, install.FindingInUse)
}

// Done shows what a run has done, also one that ended with an error, which it
// returns.
func (o *Options) Done(ctx context.Context, result *install.Result, suffix string, err error) error {
	for _, w := range result.Warnings {
		_, _ = fmt.Fprintf(o.Streams.ErrOut, " ! %s\n", w)
	}
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("interrupted: run the command again to complete it: %w", err)
	}
	if o.Quiet && o.Output == "" {
		return err
	}
	if perr := o.Print(result, suffix); err == nil {
		err = perr
	}
	return err
}

// Print prints what happened in the format of --output.
func (o *Options) Print(result *install.Result, suffix string) error {
	return Print(o.Streams.Out, o.Output, result, suffix)
}

// Print prints a result; people get lines as kubectl prints them.
func Print(out io.Writer, format string, result *install.Result, suffix string) error {
	if format == "name" {
		return printLines(out, result, func(o install.ObjectResult) string { return o.ShortName() })
	}
	return ui.Write(out, format, result, func(w io.Writer) error {
		return printLines(w, result, func(o install.ObjectResult) string {
			line := fmt.Sprintf("%s %s%s", o.ShortName(), o.Action, suffix)
			if o.Note != "" {
				line += ": " + o.Note
			}
			return line
		})
	})
}

func printLines(out io.Writer, result *install.Result, line func(install.ObjectResult) string) error {
	var b strings.Builder
	for _, o := range result.Objects {
		b.WriteString(line(o) + "\n")
	}
	_, err := io.WriteString(out, b.String())
	return err
}
