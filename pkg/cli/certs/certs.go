// SPDX-License-Identifier: Apache-2.0

// Package certs is "fairlead certs": the certificates that the tunnel uses on a
// control plane node, and their renewal. The work is done by pkg/controlplane.
package certs

import (
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/fairlead-dev/fairlead/pkg/cli/bundleflag"
	"github.com/fairlead-dev/fairlead/pkg/cli/ui"
	"github.com/fairlead-dev/fairlead/pkg/controlplane"
)

// NewCommand makes "fairlead certs". load reads the bundle; empty means what is
// installed below root, else the default one.
func NewCommand(streams genericiooptions.IOStreams, load Loader) *cobra.Command {
	cmd := &cobra.Command{
		Use: "certs", Short: "Check and renew the certificates of the tunnel on this machine", GroupID: "bundle",
		Example: "  sudo fairlead certs check -f bundle.yaml\n  sudo fairlead certs renew -f bundle.yaml",
		Long:    "Check and renew the certificates that the tunnel uses on a control plane node.",
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newCheck(streams, load), newRenew(streams, load))
	return cmd
}

// problemError carries the exit code: 1 for what does not work, 3 for what soon
// will not.
type problemError struct {
	text string
	code int
}

func (e *problemError) Error() string { return e.text }

// ExitCode is what the program ends with.
func (e *problemError) ExitCode() int { return e.code }

// CheckOptions are the flags of "certs check".
type CheckOptions struct {
	File, Output string
	WarnBefore   time.Duration
	controlplane.Options
	Streams genericiooptions.IOStreams
}

func newCheck(streams genericiooptions.IOStreams, load Loader) *cobra.Command {
	o := &CheckOptions{Streams: streams}
	cmd := &cobra.Command{
		Use: "check", Short: "List certificates and when they expire",
		Example: `  sudo fairlead certs check -f bundle.yaml
  sudo fairlead certs check -o json`,
		Long: `List every certificate that the tunnel uses on this control plane node, including
those in kubeconfigs: its subject, its issuer, when it expires, and who renews it.

Exit code: 0 all are valid, 3 one expires soon, 1 one has expired, is missing or
does not match.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) (err error) {
			if o.Bundle, err = load(o.File, o.Root, streams.In); err != nil {
				return err
			}
			return o.Run()
		},
	}
	f := cmd.Flags()
	bundleflag.Add(f, &o.File, bundleflag.Installed)
	f.StringVarP(&o.Output, "output", "o", "", "json or yaml")
	f.StringVar(&o.Root, "root", "", "root directory of the node's file system, such as a mounted disk")
	f.DurationVar(&o.WarnBefore, "warn-before", controlplane.WarnBefore, "report certificates that expire within this time")
	return cmd
}

// Run prints the table.
func (o *CheckOptions) Run() error {
	list := controlplane.Certificates(o.Options, o.WarnBefore)
	if err := ui.Write(o.Streams.Out, o.Output, list, func(out io.Writer) error { return Print(out, list) }); err != nil {
		return err
	}
	return verdict(list)
}

func verdict(list []controlplane.Certificate) error {
	var bad, soon []error
	for _, c := range list {
		text := fmt.Errorf("%s %s: %s", c.Path, c.State, c.Problem)
		switch c.State {
		case controlplane.CertGood:
		case controlplane.CertExpiring:
			soon = append(soon, text)
		default:
			bad = append(bad, text)
		}
	}
	switch {
	case len(bad) > 0:
		return &problemError{errors.Join(append(bad, soon...)...).Error(), 1}
	case len(soon) > 0:
		return &problemError{errors.Join(soon...).Error(), 3}
	}
	return nil
}

// Print writes the table of certificates.
func Print(out io.Writer, list []controlplane.Certificate) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "CERTIFICATE\tSUBJECT\tISSUER\tEXPIRES\tLEFT\tSTATE\tRENEWED BY")
	for _, c := range list {
		expires, left := "-", "-"
		if !c.Expires.IsZero() {
			expires = c.Expires.UTC().Format("2006-01-02 15:04 UTC")
			left = duration.HumanDuration(time.Duration(c.ResidualSeconds) * time.Second)
			if c.ResidualSeconds < 0 {
				left = "none"
			}
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", c.Path, dash(c.Subject), dash(c.Issuer), expires, left, c.State, c.Renewal)
	}
	return w.Flush()
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
