// SPDX-License-Identifier: Apache-2.0

// Package controlplane is the command "fairlead controlplane". It installs the
// tunnel on a kubeadm control plane node and removes it again. pkg/controlplane
// does the work; this package has the flags and the output.
package controlplane

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/cli/bundleflag"
	"github.com/fairlead-dev/fairlead/pkg/cli/ui"
	"github.com/fairlead-dev/fairlead/pkg/controlplane"
)

const long = `Install the tunnel in a control plane of kubeadm, show its status, and uninstall it.
Run these commands as root on every control plane node.

A run that fails is rolled back. If a run was killed, the next one completes it or
rolls it back.`

// NewCommand makes "fairlead controlplane".
func NewCommand(streams genericiooptions.IOStreams) *cobra.Command {
	cmd := &cobra.Command{
		Use: "controlplane", Short: "Manage the tunnel on a control plane node", Long: long,
		Example: "  sudo fairlead controlplane install -f bundle.yaml\n  sudo fairlead controlplane status -f bundle.yaml",
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

// AddFlags binds the flags that all commands have.
func (c *Common) AddFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	bundleflag.Add(f, &c.File, bundleflag.Installed)
	f.StringVarP(&c.Output, "output", "o", "", "json or yaml")
	f.StringVar(&c.Root, "root", "", "root directory of the node's file system, such as a mounted disk")
	f.StringVar(&c.Kubeconfig, "kubeconfig", "", "kubeconfig of an administrator (default: the node's /etc/kubernetes/admin.conf)")
}

// AddRunFlags binds the flags of commands that change the node.
func (c *Common) AddRunFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.DurationVar(&c.Timeout, "timeout", controlplane.DefaultTimeout, "time limit of each wait for the kubelet; when it expires, the run is rolled back")
	f.BoolVarP(&c.Quiet, "quiet", "q", false, "show failures only")
}

// ValidateRun checks what AddRunFlags has bound.
func (c *Common) ValidateRun() error {
	if c.Timeout <= 0 {
		return fmt.Errorf("--timeout %s: must be greater than 0", c.Timeout)
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

// Change holds the flags of the commands that install or remove the tunnel.
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
	cmd.Flags().BoolVar(&c.DryRun, "dry-run", false, "show what would change, as a diff, and change nothing")
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
	if file != "" {
		return bundleflag.Load(file, in, os.Stderr)
	}
	b, err := controlplane.InstalledBundle(root)
	if errors.Is(err, os.ErrPermission) {
		return nil, nil // that it takes root is said where it matters
	}
	return b, err
}
