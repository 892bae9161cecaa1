// SPDX-License-Identifier: Apache-2.0

// Package diff is "fairlead diff": it shows what "fairlead install" would change.
package diff

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/cli/bundleflag"
	"github.com/fairlead-dev/fairlead/pkg/cli/clusterflags"
	"github.com/fairlead-dev/fairlead/pkg/cli/ui"
	"github.com/fairlead-dev/fairlead/pkg/install"
)

// Options are the flags of the command. Make them with NewOptions.
type Options struct {
	Cluster clusterflags.Flags
	// File is the bundle configuration; "-" reads standard input, "" is the default bundle.
	File string
	// Output is json, yaml or "".
	Output string

	Streams genericiooptions.IOStreams
	bundle  *v1alpha1.Bundle
}

// NewOptions returns options with their defaults.
func NewOptions(streams genericiooptions.IOStreams) *Options {
	return &Options{Cluster: clusterflags.New(), Streams: streams}
}

// Error carries the exit code: as with kubectl diff, 1 says that there are
// differences, more that they could not be found out.
type Error struct {
	Code int
	Err  error
}

func (e *Error) Error() string { return e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }

// ExitCode is for the main function.
func (e *Error) ExitCode() int { return e.Code }

const long = `Show what "fairlead install" would change in a cluster, as a unified diff from the
current objects to the bundle. The API server computes the result of each change, so
defaults do not show up, and nothing is changed. The diff includes objects that
would be deleted because only an older bundle had them. It hides the values of
Secrets.

Exit code: 0 no differences, 1 differences, 2 an error.`

// NewCommand makes the command.
func NewCommand(streams genericiooptions.IOStreams) *cobra.Command {
	o := NewOptions(streams)
	cmd := &cobra.Command{
		Use: "diff", Short: "Show what install would change in a cluster", Long: long, GroupID: "bundle", Args: cobra.NoArgs,
		Example: "  fairlead diff -f bundle.yaml\n  fairlead diff -f bundle.yaml -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.Complete(); err != nil {
				return &Error{2, err}
			}
			return o.Run(cmd.Context())
		},
	}
	f := cmd.Flags()
	bundleflag.Add(f, &o.File, bundleflag.Default)
	f.StringVarP(&o.Output, "output", "o", "", "json or yaml")
	o.Cluster.AddFlags(f)
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &Error{2, err} })
	return cmd
}

// Complete reads the bundle and checks the flags.
func (o *Options) Complete() error {
	if o.Output != "" && o.Output != "json" && o.Output != "yaml" {
		return fmt.Errorf("--output %q: choose json or yaml", o.Output)
	}
	var err error
	o.bundle, err = bundleflag.Load(o.File, o.Streams.In, o.Streams.ErrOut)
	return err
}

// Run compares. Its error is an *Error with the exit code.
func (o *Options) Run(ctx context.Context) error {
	target, err := o.Cluster.Connect(ctx)
	if err != nil {
		return &Error{2, err}
	}
	objects, err := install.Objects(ctx, target.Config, o.bundle, time.Now())
	if err != nil {
		return &Error{2, err}
	}
	c, err := install.Diff(ctx, target.Config, objects)
	if err != nil {
		return &Error{2, err}
	}
	if err := ui.Write(o.Streams.Out, o.Output, c, func(w io.Writer) error { return Print(w, c) }); err != nil {
		return &Error{2, err}
	}
	switch {
	case len(c.Differences) == 0 && len(c.Problems) > 0:
		return &Error{2, &install.BlockedError{Problems: c.Problems}}
	case len(c.Differences) > 0:
		return &Error{1, fmt.Errorf("%d of the bundle's objects would change in %s%s", len(c.Differences), target, problems(c))}
	}
	return nil
}

func problems(c *install.Comparison) string {
	if len(c.Problems) == 0 {
		return ""
	}
	return "\ninstall would stop:" + (&install.BlockedError{Problems: c.Problems}).Details()
}

// Print prints the differences, in color on a terminal.
func Print(w io.Writer, c *install.Comparison) error {
	color := ui.StyleOf(w).Color
	for _, d := range c.Differences {
		for line := range strings.Lines(d.Diff) {
			if _, err := io.WriteString(w, paint(line, color)); err != nil {
				return err
			}
		}
	}
	return nil
}

// paint colors a line of a diff as git does.
func paint(line string, color bool) string {
	if !color {
		return line
	}
	var code string
	switch {
	case strings.HasPrefix(line, "---"), strings.HasPrefix(line, "+++"):
		code = "1"
	case strings.HasPrefix(line, "-"):
		code = "31"
	case strings.HasPrefix(line, "+"):
		code = "32"
	case strings.HasPrefix(line, "@@"):
		code = "36"
	default:
		return line
	}
	return "\x1b[" + code + "m" + strings.TrimSuffix(line, "\n") + "\x1b[0m\n"
}
