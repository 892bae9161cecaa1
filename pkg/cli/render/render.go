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
	"os"
	"path"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
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
	// API server: all three make the Konnectivity server's kubeconfig, none leaves
	// it out.
	CACert, CAKey, Server string

	Streams genericiooptions.IOStreams
	// Now is the clock for certificates.
	Now func() time.Time
}

// NewOptions returns options with their defaults.
func NewOptions(streams genericiooptions.IOStreams) *Options {
	return &Options{Streams: streams, Now: time.Now}
}

const long = `Render a bundle: the second scheduler and the Konnectivity tunnel of a cluster.

yaml and json print the in-cluster objects, in the order in which to apply them.
dir writes all there is below --output-dir:

  *.yaml     in-cluster objects, for kubectl apply -f DIR
  host/      files for every control plane node, below their path there
  kubeadm/   kube-apiserver's setup, in one of two ways: cluster-configuration.yaml
             to merge into a kubeadm configuration, or patches/ for kubeadm's
             patches together with certificate-sans.yaml, the name that agents
             dial, which patches cannot put into the API server's certificate

A cluster that exists needs that certificate issued again, in either way:
docs/control-plane.md has the steps in order.

It never overwrites or removes a file that it did not write.`

const examples = `  # The default bundle, straight into a cluster
  fairlead render | kubectl apply -f -

  # Everything, with the identity of the Konnectivity server
  fairlead render -f bundle.yaml -o dir --output-dir out \
    --ca-cert /etc/kubernetes/pki/ca.crt --ca-key /etc/kubernetes/pki/ca.key --server https://10.0.0.1:6443`

// NewCommand returns the command.
func NewCommand(streams genericiooptions.IOStreams) *cobra.Command {
	o := NewOptions(streams)
	cmd := &cobra.Command{
		Use:     "render",
		Short:   "Print or write what a bundle configuration stands for",
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
	return cmd
}

// AddFlags binds the options to flags of cmd.
func (o *Options) AddFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVarP(&o.File, "filename", "f", o.File, `Bundle configuration; "-" reads standard input. Default: the default bundle.`)
	f.StringVarP(&o.Output, "output", "o", o.Output, "Output format: yaml, json or dir. Default: yaml, or dir with --output-dir.")
	f.StringVar(&o.OutputDir, "output-dir", o.OutputDir, "Directory for -o dir; made if missing.")
	f.StringVar(&o.CACert, "ca-cert", o.CACert, "File with the cluster's CA certificate, to make the Konnectivity server's kubeconfig (-o dir).")
	f.StringVar(&o.CAKey, "ca-key", o.CAKey, "File with the CA's private key.")
	f.StringVar(&o.Server, "server", o.Server, "URL of the API server for that kubeconfig, such as https://10.0.0.1:6443.")
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
			return errors.New("--ca-cert, --ca-key and --server make a file: use them with -o dir")
		}
		return nil
	case formatDir:
	default:
		return fmt.Errorf("-o %q is unknown: use yaml, json or dir", o.Output)
	}
	if o.OutputDir == "" {
		return errors.New("-o dir needs --output-dir")
	}
	if given := o.CACert + o.CAKey + o.Server; given != "" && (o.CACert == "" || o.CAKey == "" || o.Server == "") {
		return errors.New("--ca-cert, --ca-key and --server go together: give all three or none")
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
	return o.printYAML(out)
}

func (o *Options) load() (*v1alpha1.Bundle, error) {
	var data []byte
	var err error
	switch o.File {
	case "":
	case "-":
		data, err = io.ReadAll(o.Streams.In)
	default:
		data, err = os.ReadFile(o.File)
	}
	if err != nil {
		return nil, fmt.Errorf("read the bundle configuration: %w", err)
	}
	b, err := bundle.Load(data)
	if err != nil && o.File != "" {
		return nil, fmt.Errorf("%s: %w", o.File, err)
	}
	return b, err
}

func (o *Options) printYAML(out *bundle.Output) error {
	for _, object := range out.Objects {
		data, err := bundle.EncodeYAML(object)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(o.Streams.Out, "---\n%s", data); err != nil {
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
		kubeconfig, err := o.serverKubeconfig(b)
		if err != nil {
			return err
		}
		files = append(files, kubeconfig)
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

// serverKubeconfig is the one file that holds a secret. It comes first, so that
// it is there before the static Pod's manifest (KON-23).
func (o *Options) serverKubeconfig(b *v1alpha1.Bundle) (bundle.File, error) {
	none := bundle.File{}
	if !ptr.Deref(b.Konnectivity.Enabled, true) {
		return none, errors.New("--ca-cert makes the kubeconfig of the Konnectivity server, but konnectivity.enabled is false: leave it out")
	}
	cert, err := os.ReadFile(o.CACert)
	if err != nil {
		return none, fmt.Errorf("--ca-cert: %w", err)
	}
	key, err := os.ReadFile(o.CAKey)
	if err != nil {
		return none, fmt.Errorf("--ca-key: %w", err)
	}
	ca, err := pki.ParseKeyPair(cert, key)
	if err != nil {
		return none, fmt.Errorf("--ca-cert %s, --ca-key %s: %w", o.CACert, o.CAKey, err)
	}
	data, err := konnectivity.ServerKubeconfig(b, ca, o.Server, o.Now())
	if err != nil {
		return none, fmt.Errorf("--ca-cert %s: %w", o.CACert, err)
	}
	return bundle.File{Path: path.Join(hostDir, b.Konnectivity.Server.Kubeconfig), Mode: 0o600, Data: data}, nil
}
