package certs

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/fairlead-dev/fairlead/pkg/cli/ui"
	"github.com/fairlead-dev/fairlead/pkg/controlplane"
)

const renewLong = `Issues the tunnel's certificates on this control plane node again: the Konnectivity
server's kubeconfig, a certificate of its own if the bundle gives it one, and those
between kube-apiserver and server if they speak TCP. apiserver.crt is kubeadm's.

No dial fails: old and new certificates are accepted side by side until the old ones
expire, and this release's server takes up renewed files while it runs. Upstream's
proxy-server reads its files once; with its image the server is restarted, which
breaks the connections through it.`

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
		Use: "renew", Short: "Issue certificates again, without a failed dial", Long: renewLong, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if o.Timeout <= 0 {
				return fmt.Errorf("--timeout %s: must be more than nothing", o.Timeout)
			}
			if o.Bundle, err = load(o.File, o.Root, streams.In); err != nil {
				return err
			}
			o.Progress = ui.NewProgress(streams.ErrOut, o.Quiet)
			return o.Run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.StringVarP(&o.File, "filename", "f", "", `bundle configuration; "-" reads standard input (default: the installed bundle, else the default one)`)
	f.StringVarP(&o.Output, "output", "o", "", "json or yaml")
	f.StringVar(&o.Root, "root", "", "directory to put before every path of the node, such as a mounted disk")
	f.DurationVar(&o.Before, "expiring-within", 0, "renew only what expires within this time, such as 720h (default: everything)")
	f.StringVar(&o.Restart, "restart", "auto", "restart the server: auto (where its image needs it), always or never")
	f.StringVar(&o.CACert, "ca-cert", "", "the cluster's CA certificate, with --ca-key (default: the node's ca.crt)")
	f.StringVar(&o.CAKey, "ca-key", "", "its private key, where the node does not have it")
	f.DurationVar(&o.Timeout, "timeout", controlplane.DefaultTimeout, "how long to wait for the kubelet before everything is put back")
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
