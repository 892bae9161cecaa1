// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/fairlead-dev/fairlead/pkg/cli/bundleflag"
	"github.com/fairlead-dev/fairlead/pkg/cli/ui"
	"github.com/fairlead-dev/fairlead/pkg/controlplane"
)

const renewLong = `Renew the tunnel's certificates on this control plane node: the Konnectivity server's
kubeconfig, the server's own certificate if the bundle has one, and those between
kube-apiserver and server if they use TCP. kubeadm renews apiserver.crt.

No dial fails: old certificates stay valid until they expire, and this release's
server reads renewed files while it runs. Upstream's proxy-server reads its files
once. With its image the command restarts the server, which breaks the connections
through it.`

// RenewOptions are the flags of "certs renew".
type RenewOptions struct {
	File, Output string
	Quiet        bool
	controlplane.RenewOptions
	Streams genericiooptions.IOStreams
}

func newRenew(streams genericiooptions.IOStreams, load Loader) *cobra.Command {
	o := &RenewOptions{Streams: streams}
	cmd := &cobra.Command{
		Use: "renew", Short: "Renew the tunnel's certificates without downtime", Long: renewLong, Args: cobra.NoArgs,
		Example: `  sudo fairlead certs renew -f bundle.yaml`,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if o.Timeout <= 0 {
				return fmt.Errorf("--timeout %s: must be greater than 0", o.Timeout)
			}
			if o.Bundle, err = load(o.File, o.Root, streams.In); err != nil {
				return err
			}
			o.Progress = ui.NewProgress(streams.ErrOut, o.Quiet)
			return o.Run(cmd.Context())
		},
	}
	f := cmd.Flags()
	bundleflag.Add(f, &o.File, bundleflag.Installed)
	f.StringVarP(&o.Output, "output", "o", "", "json or yaml")
	f.StringVar(&o.Root, "root", "", "root directory of the node's file system, such as a mounted disk")
	f.DurationVar(&o.Before, "expiring-within", 0, "renew only certificates that expire within this time, such as 720h (default: all)")
	f.StringVar(&o.Restart, "restart", "auto", "restart the server: auto (if its image needs it), always or never")
	f.StringVar(&o.CACert, "ca-cert", "", "the cluster's CA certificate, with --ca-key (default: the node's ca.crt)")
	f.StringVar(&o.CAKey, "ca-key", "", "private key of the CA, if the node does not have it")
	f.DurationVar(&o.Timeout, "timeout", controlplane.DefaultTimeout, "time limit of each wait for the kubelet; when it expires, the run is rolled back")
	f.BoolVarP(&o.Quiet, "quiet", "q", false, "show failures only")
	return cmd
}

// Run renews.
func (o *RenewOptions) Run(ctx context.Context) error {
	start := time.Now()
	r, err := controlplane.Renew(ctx, o.RenewOptions)
	if err != nil {
		return err
	}
	return ui.Write(o.Streams.Out, o.Output, r, func(out io.Writer) error {
		for _, f := range r.Files {
			_, _ = fmt.Fprintln(out, "renewed", f)
		}
		for _, note := range r.Notes {
			_, _ = fmt.Fprintln(out, "note:", note)
		}
		how := "while the server runs"
		if r.Restarted {
			how = "the server was restarted"
		}
		if !r.Changed {
			_, err := fmt.Fprintln(out, "Nothing to renew.")
			return err
		}
		_, err := fmt.Fprintf(out, "Renewed %d files in %s, %s.\n", len(r.Files), time.Since(start).Round(time.Millisecond), how)
		return err
	})
}
