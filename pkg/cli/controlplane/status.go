// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/fairlead-dev/fairlead/pkg/cli/certs"
	"github.com/fairlead-dev/fairlead/pkg/cli/ui"
	"github.com/fairlead-dev/fairlead/pkg/controlplane"
)

// ErrUnhealthy makes "status" end with a non-zero exit code.
var ErrUnhealthy = errors.New("not healthy")

func newStatus(streams genericiooptions.IOStreams) *cobra.Command {
	o := &Common{Streams: streams}
	cmd := &cobra.Command{
		Use: "status", Short: "Show the tunnel on this control plane node, and whether it works",
		Example: `  sudo fairlead controlplane status -f bundle.yaml
  sudo fairlead controlplane status -o json`,
		Long: `Show what is installed on this control plane node: every file and whether it has
changed, both programs and their health, and the certificates.

Exit code: 0 healthy, 1 otherwise.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.Complete(); err != nil {
				return err
			}
			return o.runStatus(cmd.Context())
		},
	}
	o.AddFlags(cmd)
	return cmd
}

func (c *Common) runStatus(ctx context.Context) error {
	s, err := controlplane.Inspect(ctx, c.Options)
	if err != nil {
		return err
	}
	if err := ui.Write(c.Streams.Out, c.Output, s, func(out io.Writer) error { return printStatus(out, s) }); err != nil {
		return err
	}
	if len(s.Problems) > 0 {
		return fmt.Errorf("%w: %s", ErrUnhealthy, s.Problems[0])
	}
	return nil
}

func printStatus(out io.Writer, s controlplane.Status) error {
	switch {
	case s.Interrupted != "":
		_, _ = fmt.Fprintf(out, "Node %s: an %s was interrupted\n", s.Node, s.Interrupted)
	case !s.Installed && s.WithoutTunnel:
		_, _ = fmt.Fprintf(out, "Node %s: created by \"fairlead up --provider %s\", without the tunnel, as its bundle says\n", s.Node, s.Provider)
	case !s.Installed && s.Provider != "":
		_, _ = fmt.Fprintf(out, "Node %s: created with the tunnel by \"fairlead up --provider %s\"\n", s.Node, s.Provider)
	case !s.Installed:
		_, _ = fmt.Fprintf(out, "Node %s: not installed by fairlead\n", s.Node)
	default:
		_, _ = fmt.Fprintf(out, "Node %s: installed %s by fairlead %s\n", s.Node, s.Since.Local().Format(time.DateTime), s.Version)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "\nPROGRAM\tPROCESS\tHEALTH\tREADY\tIMAGE")
	tunnel := "direct"
	if s.APIServer.Tunnel {
		tunnel = "tunnel"
	}
	_, _ = fmt.Fprintf(w, "kube-apiserver (%s)\t%s\t%s\t\t%s\n", tunnel, pid(s.APIServer.Process), s.APIServer.Health, s.APIServer.Image)
	_, _ = fmt.Fprintf(w, "konnectivity-server\t%s\t%s\t%s\t%s\n", pid(s.Server.Process), s.Server.Health, s.Server.Ready, s.Server.Image)
	if len(s.Files) > 0 {
		_, _ = fmt.Fprintln(w, "\nFILE\tSTATE")
		for _, f := range s.Files {
			_, _ = fmt.Fprintf(w, "%s\t%s\n", f.Path, f.State)
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, _ = fmt.Fprintln(out)
	return certs.Print(out, s.Certificates)
}

func pid(n int) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprint(n)
}
