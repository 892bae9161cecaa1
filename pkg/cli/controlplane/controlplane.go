// Package controlplane is "fairlead controlplane": the tunnel into a kubeadm
// control plane node and out of it again. The work is done by
// pkg/controlplane; here are flags and output.
package controlplane

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/cli/ui"
	"github.com/fairlead-dev/fairlead/pkg/controlplane"
)

const long = `Bring the tunnel into a control plane that kubeadm has made, look at it, and take
it out again. Run it as root on every control plane node.

It never leaves a control plane half-changed: what fails is put back, and a run
that was killed is completed or put back by the next one.`

// NewCommand makes "fairlead controlplane".
func NewCommand(streams genericiooptions.IOStreams) *cobra.Command {
	cmd := &cobra.Command{
		Use: "controlplane", Short: "Put the tunnel into this machine's control plane, or take it out", Long: long,
		GroupID: "bundle",
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newInstall(streams), newStatus(streams), newUninstall(streams))
	return cmd
}

// Common are the flags that several commands share.
type Common struct {
	// File is the bundle configuration; "-" reads standard input. Empty means the
	// installed bundle, or if none is, the default one.
	File string
	// Output is json, yaml or empty.
	Output string
	// Quiet shows failures only.
	Quiet bool

	controlplane.Options
	Streams genericiooptions.IOStreams
}

// AddFlags binds what all commands have.
func (c *Common) AddFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVarP(&c.File, "filename", "f", "", `bundle configuration; "-" reads standard input (default: the installed bundle, else the default one)`)
	f.StringVarP(&c.Output, "output", "o", "", "json or yaml")
	f.StringVar(&c.Root, "root", "", "directory to put before every path of the node, such as a mounted disk")
	f.StringVar(&c.Kubeconfig, "kubeconfig", "", "kubeconfig of an administrator (default: the node's /etc/kubernetes/admin.conf)")
}

// AddRunFlags binds what commands have that change something.
func (c *Common) AddRunFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.DurationVar(&c.Timeout, "timeout", controlplane.DefaultTimeout, "how long each wait for the kubelet may take before everything is put back")
	f.BoolVarP(&c.Quiet, "quiet", "q", false, "show failures only")
}

// ValidateRun checks what AddRunFlags has bound.
func (c *Common) ValidateRun() error {
	if c.Timeout <= 0 {
		return fmt.Errorf("--timeout %s: must be more than nothing", c.Timeout)
	}
	return nil
}

// Complete reads the bundle.
func (c *Common) Complete() error {
	if c.Output != "" && c.Output != "json" && c.Output != "yaml" {
		return fmt.Errorf("--output %q: choose json or yaml", c.Output)
	}
	c.Progress = ui.NewProgress(c.Streams.ErrOut, c.Quiet)
	c.Notef = func(format string, args ...any) {
		_, _ = fmt.Fprintf(c.Streams.ErrOut, " ! "+format+"\n", args...)
	}
	var err error
	c.Bundle, err = LoadBundle(c.File, c.Root, c.Streams.In)
	return err
}

// Change are the flags of the commands that take the tunnel in or out.
type Change struct {
	Common
	// DryRun prints what would change.
	DryRun bool
	// KubeadmConfig includes kubeadm's stored configuration.
	KubeadmConfig bool
}

// AddFlags binds them; kubeadm says what is done with its stored configuration.
func (c *Change) AddFlags(cmd *cobra.Command, kubeadm string) {
	c.Common.AddFlags(cmd)
	c.AddRunFlags(cmd)
	cmd.Flags().BoolVar(&c.DryRun, "dry-run", false, "print what would change, as a diff, and change nothing")
	cmd.Flags().BoolVar(&c.KubeadmConfig, "kubeadm-config", true, kubeadm)
}

// Complete fills in what follows from flags.
func (c *Change) Complete() error {
	c.LeaveKubeadmConfig = !c.KubeadmConfig
	return c.Common.Complete()
}

// LoadBundle reads a configuration, or without one takes what is installed below
// root; nil for the default bundle.
func LoadBundle(file, root string, in io.Reader) (*v1alpha1.Bundle, error) {
	var data []byte
	var err error
	switch file {
	case "":
		b, err := controlplane.InstalledBundle(root)
		if errors.Is(err, os.ErrPermission) {
			return nil, nil // that it takes root is said where it matters
		}
		return b, err
	case "-":
		data, err = io.ReadAll(in)
	default:
		data, err = os.ReadFile(file)
	}
	if err != nil {
		return nil, fmt.Errorf("read the bundle configuration: %w", err)
	}
	b, err := bundle.Load(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return b, nil
}
