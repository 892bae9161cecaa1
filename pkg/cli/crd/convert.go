// SPDX-License-Identifier: Apache-2.0

package crd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes"

	"github.com/fairlead-dev/fairlead/pkg/cli/clusterflags"
	"github.com/fairlead-dev/fairlead/pkg/cli/ui"
	"github.com/fairlead-dev/fairlead/pkg/crd"
	"github.com/fairlead-dev/fairlead/pkg/crd/convert"
	"github.com/fairlead-dev/fairlead/pkg/gateway/dial"
	"github.com/fairlead-dev/fairlead/pkg/gateway/resolve"
)

// convertOptions are the flags of "fairlead crd convert".
type convertOptions struct {
	cluster   clusterflags.Flags
	file      string
	recursive bool
	url       string
	caFile    string
	output    string
	convert.Options

	streams genericiooptions.IOStreams
}

const convertLong = `Test a conversion webhook. The command sends the objects to the webhook as
kube-apiserver does: to each other version of the definition, and back. It reports lost
and changed fields, responses that the API server refuses (UID, names, metadata, number
of objects), fields that the schema removes, failures of single objects, and slow
answers. Give samples in each version that have all fields set.

The webhook is that of the definition: its URL, or its service, which the command
reaches with a port-forward in the cluster of your kubeconfig. To test a webhook
before it is deployed, name it with --url.

Exit code: 0 no errors, 1 at least one error, 2 the command cannot do its work.`

func newConvert(streams genericiooptions.IOStreams) *cobra.Command {
	o := &convertOptions{cluster: clusterflags.New(), streams: streams}
	cmd := &cobra.Command{
		Use: "convert -f CRD OBJECT...", Short: "Test a conversion webhook", Long: convertLong,
		Example: "  fairlead crd convert -f crd.yaml samples/\n  fairlead crd convert -f crd.yaml samples/ --url https://127.0.0.1:9443/convert --ca-file ca.crt",
		RunE:    func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args) },
	}
	f := cmd.Flags()
	f.StringVarP(&o.file, "filename", "f", "", `file with the definition; "-" reads standard input`)
	f.BoolVarP(&o.recursive, "recursive", "R", false, "also read the directories below a directory")
	f.StringVar(&o.url, "url", "", "URL of the webhook (default: that of the definition)")
	f.StringVar(&o.caFile, "ca-file", "", "file with the CA of the webhook's certificate, in PEM (default: caBundle of the definition)")
	f.DurationVar(&o.Slow, "slow", convert.DefaultSlow, "warn of calls that take longer")
	f.DurationVar(&o.Limit, "limit", convert.Limit, "give up calls that take longer, as the API server does")
	f.StringVarP(&o.output, "output", "o", "", "json or yaml")
	o.cluster.AddFlags(f)
	return cmd
}

func (o *convertOptions) run(ctx context.Context, args []string) error {
	if o.output != "" && o.output != "json" && o.output != "yaml" {
		return cannot(fmt.Errorf("--output %q: choose json or yaml", o.output))
	}
	if o.file == "" {
		return cannot(errors.New("no definition given: name its file with -f"))
	}
	all, err := definitions([]string{o.file}, o.recursive, o.streams.In)
	if err != nil {
		return cannot(err)
	}
	if len(all) > 1 {
		return cannot(fmt.Errorf("%s has %d definitions: name a file with one", o.file, len(all)))
	}
	docs, err := objects(args, o.recursive, o.streams.In)
	if err != nil {
		return cannot(err)
	}
	samples := make([]*unstructured.Unstructured, 0, len(docs))
	for _, d := range docs {
		samples = append(samples, d.Object)
	}
	endpoint, done, err := o.endpoint(ctx, all[0])
	if err != nil {
		return cannot(err)
	}
	defer done()
	r, err := convert.Run(ctx, all[0], samples, endpoint, o.Options)
	if err != nil {
		return cannot(err)
	}
	if err := ui.Write(o.streams.Out, o.output, r, func(w io.Writer) error { return printConversions(w, r) }); err != nil {
		return cannot(err)
	}
	if n := r.Errors(); n > 0 {
		return &Error{1, fmt.Errorf("%d errors and %d warnings in %d calls of %s", n, len(r.Problems)-n, len(r.Calls), r.Webhook)}
	}
	return nil
}

// endpoint finds the webhook. The second result ends its connections.
func (o *convertOptions) endpoint(ctx context.Context, d *crd.Definition) (convert.Endpoint, func(), error) {
	done := func() {}
	url, ca, dialer := o.url, []byte(nil), convert.DialFunc(nil)
	if url == "" {
		ofDefinition, bundle, service, err := convert.Of(d.CustomResourceDefinition)
		if err != nil {
			return convert.Endpoint{}, done, err
		}
		url, ca = ofDefinition, bundle
		if service != nil {
			if dialer, done, err = o.forward(ctx); err != nil {
				return convert.Endpoint{}, done, fmt.Errorf("reach service %s/%s: %w", service.Namespace, service.Name, err)
			}
		}
	}
	if o.caFile != "" {
		var err error
		if ca, err = os.ReadFile(o.caFile); err != nil {
			return convert.Endpoint{}, done, fmt.Errorf("--ca-file: %w", err)
		}
	}
	e, err := convert.NewEndpoint(url, ca, dialer)
	return e, done, err
}

// forward dials services through port-forwards.
func (o *convertOptions) forward(ctx context.Context) (convert.DialFunc, func(), error) {
	none := func() {}
	target, err := o.cluster.Connect(ctx)
	if err != nil {
		return nil, none, err
	}
	client, err := kubernetes.NewForConfig(target.Config)
	if err != nil {
		return nil, none, err
	}
	resolver := resolve.New(client, resolve.Options{PodsByName: true})
	d, err := dial.New(dial.ViaPortForward, dial.Options{Config: target.Config, Alternatives: resolver.Alternatives})
	if err != nil {
		return nil, none, err
	}
	return func(ctx context.Context, _, address string) (net.Conn, error) {
		host, text, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		port, err := strconv.ParseUint(text, 10, 16)
		if err != nil {
			return nil, err
		}
		to, err := resolver.Resolve(ctx, host, uint16(port))
		if err != nil {
			return nil, err
		}
		return d.Dial(ctx, to)
	}, func() { _ = d.Close() }, nil
}

func printConversions(w io.Writer, r *convert.Report) error {
	var b strings.Builder
	for _, p := range r.Problems {
		where := p.Object
		if p.From != "" {
			where += fmt.Sprintf(" (%s to %s)", p.From, p.To)
		} else {
			where = "to " + p.To
		}
		fmt.Fprintf(&b, "%-8s %-14s %s\n", p.Level, p.Rule, where)
		fmt.Fprintf(&b, "         %s\n", strings.TrimPrefix(p.Field+": "+p.Message, ": "))
	}
	var slowest time.Duration
	for _, c := range r.Calls {
		slowest = max(slowest, c.Took)
	}
	fmt.Fprintf(&b, "%d calls with %d samples, the slowest %v: %d errors, %d warnings\n", len(r.Calls), r.Objects, slowest.Round(time.Millisecond), r.Errors(), len(r.Problems)-r.Errors())
	_, err := io.WriteString(w, b.String())
	return err
}
