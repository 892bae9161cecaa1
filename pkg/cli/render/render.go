// SPDX-License-Identifier: Apache-2.0

// Package render is "fairlead render": it prints or writes what a bundle
// configuration stands for, and changes no cluster.
//
// Start with [Options.Run]. The rendering itself is package bundle; here are
// reading the configuration and writing files so that a failure leaves the
// directory as it was.
package render

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/cli/bundleflag"
)

// Output formats.
const (
	formatYAML = "yaml"
	formatJSON = "json"
	formatDir  = "dir"
)

// Options are the flags of the command and what it works with.
type Options struct {
	// File is the configuration: a path, "-" for standard input, or empty for the
	// default bundle.
	File string
	// Output is yaml, json or dir.
	Output string
	// OutputDir is where dir writes.
	OutputDir string
	// CACert and CAKey are files with the cluster's CA, and Server is the URL of its
	// API server: all three make the kubeconfigs of static Pods, none leaves them
	// out.
	CACert, CAKey, Server string

	Streams genericiooptions.IOStreams
	// Now is the clock for certificates.
	Now func() time.Time
}

// NewOptions returns options with their defaults.
func NewOptions(streams genericiooptions.IOStreams) *Options {
	return &Options{Streams: streams, Now: time.Now}
}

const long = `Render a bundle to manifests and host files.

-o yaml and -o json print the in-cluster objects, in the order in which to apply
them. -o dir writes everything to --output-dir:

  *.yaml     in-cluster objects, for kubectl apply -f DIR
  host/      files for every control plane node, with their paths there
  kubeadm/   kube-apiserver's flags and mounts, in two forms. Use one of them:
             cluster-configuration.yaml, to merge into a kubeadm configuration; or
             patches/, for kubeadm's patches, with certificate-sans.yaml, which
             adds the name that agents dial to the API server's certificate

In an existing cluster, issue that certificate again: docs/control-plane.md lists
the steps in order.

The command never overwrites or removes a file that it did not write.`

const examples = `  # Apply the default bundle to a cluster
  fairlead render | kubectl apply -f -

  # Write everything, including the kubeconfig of the Konnectivity server
  fairlead render -f bundle.yaml -o dir --output-dir out \
    --ca-cert /etc/kubernetes/pki/ca.crt --ca-key /etc/kubernetes/pki/ca.key --server https://10.0.0.1:6443`

// NewCommand returns the command.
func NewCommand(streams genericiooptions.IOStreams) *cobra.Command {
	o := NewOptions(streams)
	cmd := &cobra.Command{
		Use:     "render",
		Short:   "Render a bundle to manifests and host files",
		Long:    long,
		Example: examples,
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := o.Complete(); err != nil {
				return err
			}
			if err := o.Validate(); err != nil {
				return err
			}
			return o.Run()
		},
	}
	o.AddFlags(cmd)
	cmd.AddCommand(newAPIServiceCommand(streams), newOperatorCommand(streams))
	return cmd
}

// AddFlags binds the options to flags of cmd.
func (o *Options) AddFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	bundleflag.Add(f, &o.File, bundleflag.Default)
	f.StringVarP(&o.Output, "output", "o", o.Output, "yaml, json or dir (default: yaml, or dir with --output-dir)")
	f.StringVar(&o.OutputDir, "output-dir", o.OutputDir, "directory for -o dir; created if it does not exist")
	f.StringVar(&o.CACert, "ca-cert", o.CACert, "file with the cluster's CA certificate, to create the kubeconfigs of static Pods (-o dir): the Konnectivity server's, and the second scheduler's with scheduler.form StaticPod")
	f.StringVar(&o.CAKey, "ca-key", o.CAKey, "file with the CA's private key")
	f.StringVar(&o.Server, "server", o.Server, "URL of the API server for these kubeconfigs, such as https://10.0.0.1:6443")
}

// Complete fills in what follows from the rest.
func (o *Options) Complete() error {
	switch {
	case o.Output != "":
	case o.OutputDir != "":
		o.Output = formatDir
	default:
		o.Output = formatYAML
	}
	return nil
}

// Validate checks the flags against each other.
func (o *Options) Validate() error {
	switch o.Output {
	case formatYAML, formatJSON:
		if o.OutputDir != "" {
			return fmt.Errorf("--output-dir needs -o dir, not -o %s", o.Output)
		}
		if o.CACert+o.CAKey+o.Server != "" {
			return errors.New("--ca-cert, --ca-key and --server create a file: use them with -o dir")
		}
		return nil
	case formatDir:
	default:
		return fmt.Errorf("--output %q: choose yaml, json or dir", o.Output)
	}
	if o.OutputDir == "" {
		return errors.New("-o dir needs --output-dir")
	}
	if given := o.CACert + o.CAKey + o.Server; given != "" && (o.CACert == "" || o.CAKey == "" || o.Server == "") {
		return errors.New("--ca-cert, --ca-key and --server go together: set all three or none")
	}
	if o.Server != "" && !strings.HasPrefix(o.Server, "https://") {
		return fmt.Errorf("--server %q must be an https:// URL", o.Server)
	}
	return nil
}

// Run renders and prints or writes.
func (o *Options) Run() error {
	b, err := o.load()
	if err != nil {
		return err
	}
	out, err := bundle.Render(b)
	if err != nil {
		return err
	}
	switch o.Output {
	case formatJSON:
		return o.printJSON(out)
	case formatDir:
		return o.writeDir(b, out)
	}
	return printYAML(o.Streams.Out, out.Objects)
}

func (o *Options) load() (*v1alpha1.Bundle, error) {
	return bundleflag.Load(o.File, o.Streams.In, o.Streams.ErrOut)
}

func printYAML(out io.Writer, objects []component.Object) error {
	for _, object := range objects {
		data, err := bundle.EncodeYAML(object)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(out, "---\n%s", data); err != nil {
			return fmt.Errorf("print: %w", err)
		}
	}
	return nil
}

func (o *Options) printJSON(out *bundle.Output) error {
	data, err := bundle.EncodeList(out.Objects)
	if err != nil {
		return err
	}
	if _, err := o.Streams.Out.Write(data); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

func (o *Options) writeDir(b *v1alpha1.Bundle, out *bundle.Output) error {
	var files []bundle.File
	if o.CACert != "" {
		kubeconfigs, err := o.kubeconfigs(b)
		if err != nil {
			return err
		}
		files = append(files, kubeconfigs...)
	}
	rest, err := layout(out)
	if err != nil {
		return err
	}
	files = append(files, rest...)
	if err := writeTree(o.OutputDir, files); err != nil {
		return err
	}
	_, err = fmt.Fprintf(o.Streams.ErrOut, "wrote %d files below %s\n", len(files), o.OutputDir)
	return err
}
