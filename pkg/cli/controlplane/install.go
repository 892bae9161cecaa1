// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/fairlead-dev/fairlead/pkg/cli/ui"
	"github.com/fairlead-dev/fairlead/pkg/controlplane"
)

const installLong = `Install the tunnel on this control plane node. The command:

  1. runs preflight checks, which change nothing
  2. writes certificates, kubeconfig (0600) and egress selector file, and issues
     apiserver.crt again, with the same key, if it lacks the name that agents dial
  3. starts the Konnectivity server's static Pod
  4. adds a flag and mounts to kube-apiserver's manifest; comments, order and
     all other lines stay
  5. adds the same to kubeadm's stored configuration, so that "kubeadm upgrade" and
     "kubeadm join" keep it

Each step waits for the kubelet. If a step fails, or you interrupt it, the command
restores everything. A second run has nothing to do. Run the command with another
bundle to change the installation. It keeps the original files in
` + controlplane.StateDir + `.

If agents are already in the cluster ("fairlead install"), kube-apiserver starts to
use the tunnel when the first agent is connected, so that no call fails.`

const installExamples = `  # Show what would change
  sudo fairlead controlplane install -f bundle.yaml --dry-run

  # Install without a failed call: server first, then agents, then kube-apiserver
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
		Use: "install", Short: "Install the tunnel on this control plane node", Long: installLong, Example: installExamples,
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
	f.BoolVar(&o.ServerOnly, "server-only", false, "install everything except kube-apiserver's part; run again without this flag to complete")
	f.StringSliceVar(&o.IgnorePreflight, "ignore-preflight-errors", nil, "preflight checks whose errors are shown as warnings: "+strings.Join(controlplane.IgnorableChecks(), ", "))
	f.StringVar(&o.CACert, "ca-cert", "", "the cluster's CA certificate, with --ca-key (default: the node's ca.crt)")
	f.StringVar(&o.CAKey, "ca-key", "", "private key of the CA, if the node does not have it")
	f.StringVar(&o.ServerKubeconfig, "server-kubeconfig", "", "existing kubeconfig of the Konnectivity server, if the CA's key must not be on this node")
	f.StringVar(&o.Server, "server", "", "URL of the API server for the kubeconfig (default: this node's own)")
	return cmd
}

// Validate checks the flags against each other.
func (o *InstallOptions) Validate() error {
	for _, id := range o.IgnorePreflight {
		if !slices.Contains(controlplane.IgnorableChecks(), id) {
			return fmt.Errorf("--ignore-preflight-errors=%s: unknown check: use %s", id, strings.Join(controlplane.IgnorableChecks(), ", "))
		}
	}
	if (o.CACert == "") != (o.CAKey == "") {
		return errors.New("--ca-cert and --ca-key go together: set both or none")
	}
	if o.ServerKubeconfig != "" && o.Server != "" {
		return errors.New("--server and --server-kubeconfig are mutually exclusive: remove one of them")
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
		_, err := fmt.Fprintln(out, "Nothing to do: everything is installed and works.")
		return err
	case o.ServerOnly:
		_, err := fmt.Fprintf(out, `
The Konnectivity server runs. kube-apiserver does not use it yet. Install the agents,
then run this command again without --server-only:

  %s install
`, ui.Self())
		return err
	}
	_, err := fmt.Fprintf(out, `
The control plane uses the tunnel. Install the part in the cluster, if you have not
done so yet, and verify it:

  %[1]s install
  %[1]s verify

To remove it:

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
				text = "(holds a private key or a token; not shown)\n"
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
			if _, err := fmt.Fprintln(out, "# keep", l); err != nil {
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
