package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/fairlead-dev/fairlead/pkg/cli/ui"
	"github.com/fairlead-dev/fairlead/pkg/controlplane"
)

const installLong = `Install the tunnel into this machine's control plane:

  1. everything is checked, while nothing changes
  2. certificates, kubeconfig (0600) and egress selector file are written;
     apiserver.crt is issued again, with the same key, if it lacks the name that
     agents dial
  3. the Konnectivity server's static Pod starts
  4. kube-apiserver's manifest gets its flag and mounts; comments, order and
     everything else in it stay
  5. kubeadm's stored configuration gets the same, so that "kubeadm upgrade" and
     "kubeadm join" keep it

Each step waits for the kubelet. If one fails, or you interrupt it, everything is
put back. Run it again and there is nothing to do; run it with another bundle and
the installation follows. Files from before are kept in ` + controlplane.StateDir + `.

If agents are in the cluster already ("fairlead install"), kube-apiserver changes
over when the first of them is connected, so that nothing fails in between.`

const installExamples = `  # See what would change
  sudo fairlead controlplane install -f bundle.yaml --dry-run

  # Nothing fails in between: server first, then agents, then kube-apiserver
  sudo fairlead controlplane install -f bundle.yaml --server-only
  fairlead install -f bundle.yaml
  sudo fairlead controlplane install -f bundle.yaml`

// InstallOptions are the flags of "install".
type InstallOptions struct {
	Change
}

func newInstall(streams genericiooptions.IOStreams) *cobra.Command {
	o := &InstallOptions{Change{Common: Common{Streams: streams}}}
	cmd := &cobra.Command{
		Use: "install", Short: "Install the tunnel into this machine's control plane", Long: installLong, Example: installExamples,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.Complete(); err != nil {
				return err
			}
			if err := o.Validate(); err != nil {
				return err
			}
			return o.Run(cmd.Context())
		},
	}
	o.AddFlags(cmd, "also change kubeadm's stored configuration, ConfigMap kube-system/kubeadm-config")
	f := cmd.Flags()
	f.BoolVar(&o.ServerOnly, "server-only", false, "install all but kube-apiserver's part; another run without this flag does the rest")
	f.BoolVar(&o.Force, "force", false, "go on with an untested Kubernetes version, with a server count that is too low, or where webhooks would be out of reach until agents are connected")
	f.StringVar(&o.CACert, "ca-cert", "", "the cluster's CA certificate, with --ca-key (default: the node's ca.crt)")
	f.StringVar(&o.CAKey, "ca-key", "", "its private key, where the node does not have it")
	f.StringVar(&o.ServerKubeconfig, "server-kubeconfig", "", "ready-made kubeconfig of the Konnectivity server, where the CA's key must not come to this node")
	f.StringVar(&o.Server, "server", "", "URL of the API server in the kubeconfig that is made (default: this node's own)")
	return cmd
}

// Validate checks the flags against each other.
func (o *InstallOptions) Validate() error {
	if (o.CACert == "") != (o.CAKey == "") {
		return errors.New("--ca-cert and --ca-key go together: give both or none")
	}
	if o.ServerKubeconfig != "" && o.Server != "" {
		return errors.New("--server is for the kubeconfig that is made: it does not go with --server-kubeconfig")
	}
	return o.ValidateRun()
}

// Run installs, or says what that would change.
func (o *InstallOptions) Run(ctx context.Context) error {
	if o.DryRun {
		diffs, err := controlplane.PlanInstall(ctx, o.Options)
		if err != nil {
			return err
		}
		return o.printPlan(diffs, nil)
	}
	result, err := controlplane.Install(ctx, o.Options)
	if err != nil {
		return err
	}
	return ui.Write(o.Streams.Out, o.Output, result, func(out io.Writer) error { return o.printDone(out, result) })
}

func (o *InstallOptions) printDone(out io.Writer, r controlplane.Result) error {
	switch {
	case !r.Changed:
		_, err := fmt.Fprintln(out, "Nothing to do: all of it is installed and works.")
		return err
	case o.ServerOnly:
		_, err := fmt.Fprintf(out, `
The Konnectivity server runs; kube-apiserver does not use it yet. Bring the agents,
then run the command again without --server-only:

  %s install
`, ui.Self())
		return err
	}
	_, err := fmt.Fprintf(out, `
The control plane uses the tunnel. Bring the part in the cluster, if it is not there
yet, and prove that it works:

  %[1]s install
  %[1]s verify

Take it out again:

  %[1]s controlplane uninstall
`, ui.Self())
	return err
}

// printPlan prints what a run would change.
func (c *Common) printPlan(diffs []controlplane.FileDiff, left []string) error {
	v := map[string]any{"changes": diffs, "left": left}
	return ui.Write(c.Streams.Out, c.Output, v, func(out io.Writer) error {
		for _, d := range diffs {
			text := d.Diff
			if d.Secret {
				text = "(holds a private key; not shown)\n"
			}
			mode := ""
			if d.Mode != "" {
				mode = ", mode " + d.Mode
			}
			if _, err := fmt.Fprintf(out, "# %s %s%s\n%s", d.Action, d.Path, mode, text); err != nil {
				return err
			}
		}
		for _, l := range left {
			if _, err := fmt.Fprintln(out, "# leave", l); err != nil {
				return err
			}
		}
		summary := fmt.Sprintf("%d changes, none made (--dry-run)", len(diffs))
		if len(diffs) == 0 {
			summary = "nothing would change"
		}
		_, err := fmt.Fprintln(c.Streams.ErrOut, summary)
		return err
	})
}
