// Package verify is the command `fairlead verify`: it makes the checks of pkg/check against the cluster of a kubeconfig.
package verify

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/klog/v2"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/check"
	"github.com/fairlead-dev/fairlead/pkg/check/report"
	"github.com/fairlead-dev/fairlead/pkg/cli/ui"
)

// Options are the flags of verify. Make them with NewOptions, change what you like, then Complete, Validate, Run. All fields may be empty: see the
// flags of the same names for what that means.
type Options struct {
	Streams genericiooptions.IOStreams
	Sources []check.EnvSource

	Kubeconfig, Context string
	// Filename is the Bundle that the cluster was set up with. SchedulerName and Lease override what it says, and what a source says.
	Filename         string
	SchedulerName    string
	Lease            string
	Disruptive, List bool
	Only, Output     string
	Timeout          time.Duration
	WebhookAddress   string
	ServerMetricsURL string
	Image            string

	bundle   *v1alpha1.Bundle
	only     *regexp.Regexp
	lease    types.NamespacedName
	hostIP   string
	hostPort int
}

// NewOptions returns the Options of a run of the quick checks in the current context, reported as text. Sources are asked first whether they know
// the cluster; see check.EnvSource.
func NewOptions(streams genericiooptions.IOStreams, sources ...check.EnvSource) *Options {
	return &Options{Streams: streams, Sources: sources, Output: "text"}
}

// SilenceClientLogs turns off what client-go logs in the whole process: the checks report the same better, and not in the middle of a line.
func SilenceClientLogs() { klog.SetLogger(logr.Discard()) }

// NewCommand returns the verify command; see NewOptions.
func NewCommand(streams genericiooptions.IOStreams, sources ...check.EnvSource) *cobra.Command {
	o := NewOptions(streams, sources...)
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Prove that pods choose their scheduler and that the API server reaches nodes through the tunnel",
		Long: `Verify proves that the second scheduler and the Konnectivity tunnel of a cluster work. It makes pods, a Service and a webhook in
throw-away namespaces and deletes them again.

Exit code: 0 all is proved, 1 a check failed, 2 wrong usage or no connection to the API server.`,
		Example: `  fairlead verify                              # the current context
  fairlead verify --disruptive                 # also stop parts, and put them back
  fairlead verify -f bundle.yaml               # names and ports as rendered from this bundle
  fairlead verify --only tunnel -o junit       # some checks, for CI
  fairlead verify --list`,
		Args: cobra.NoArgs, SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			SilenceClientLogs()
			if err := refuseEmpty(cmd, "scheduler-name", "lease", "filename"); err != nil {
				return err
			}
			if err := o.Complete(); err != nil {
				return err
			}
			if err := o.Validate(); err != nil {
				return err
			}
			return o.Run(cmd.Context())
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &Error{Code: 2, Err: err} })
	o.addFlags(cmd)
	return cmd
}

func (o *Options) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig, "kubeconfig file (default: $KUBECONFIG, then ~/.kube/config)")
	f.StringVar(&o.Context, "context", o.Context, "kubeconfig context (default: the current one)")
	f.StringVarP(&o.Filename, "filename", "f", o.Filename, `Bundle that the cluster was set up with, which gives all names and ports; "-" reads standard input (default: what a cluster of "fairlead up" was made with, else the default bundle)`)
	f.BoolVar(&o.Disruptive, "disruptive", o.Disruptive, "also make the checks that stop a part of the cluster and put it back")
	f.StringVar(&o.Only, "only", o.Only, "make only the checks whose id matches this regular expression")
	f.StringVarP(&o.Output, "output", "o", o.Output, "text, json or junit")
	f.DurationVar(&o.Timeout, "timeout", o.Timeout, "time limit of each check (default: each has its own)")
	f.StringVar(&o.SchedulerName, "scheduler-name", o.SchedulerName, "name of the second scheduler's profile (default: the bundle's first, "+v1alpha1.DefaultSchedulerName+")")
	f.StringVar(&o.Lease, "lease", o.Lease, "namespace/name of the second scheduler's Lease (default: the bundle's, "+v1alpha1.DefaultNamespace+"/"+v1alpha1.DefaultSchedulerName+")")
	f.StringVar(&o.WebhookAddress, "webhook-address", o.WebhookAddress, "IP or IP:PORT of this machine that the agents can reach (default: found out, any free port)")
	f.StringVar(&o.ServerMetricsURL, "server-metrics-url", o.ServerMetricsURL, "konnectivity-server's /metrics (default: asked from its pods through the API server)")
	f.StringVar(&o.Image, "image", o.Image, "image of the pod for logs, exec and port-forward: must serve agnhost's netexec and have sh, head and sleep (default "+check.DefaultProbeImage+")")
	f.BoolVar(&o.List, "list", o.List, "list the checks and exit")
}

// refuseEmpty keeps an unset variable in a script from meaning the default.
func refuseEmpty(cmd *cobra.Command, flags ...string) error {
	for _, name := range flags {
		if f := cmd.Flags().Lookup(name); f.Changed && f.Value.String() == "" {
			return usage("--%s: must not be empty; leave the flag out for the default", name)
		}
	}
	return nil
}

// Complete reads the bundle and parses what flags hold as text.
func (o *Options) Complete() error {
	var err error
	if o.bundle, err = o.loadBundle(); err != nil {
		return usage("--filename: %w", err)
	}
	if o.Only != "" {
		if o.only, err = regexp.Compile(o.Only); err != nil {
			return usage("--only: %w", err)
		}
	}
	if o.Lease != "" {
		namespace, name, ok := strings.Cut(o.Lease, "/")
		if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
			return usage("--lease %q: want namespace/name, for example %s/%s", o.Lease, v1alpha1.DefaultNamespace, v1alpha1.DefaultSchedulerName)
		}
		o.lease = types.NamespacedName{Namespace: namespace, Name: name}
	}
	return o.completeAddress()
}

func (o *Options) loadBundle() (*v1alpha1.Bundle, error) {
	var data []byte
	var err error
	switch o.Filename {
	case "":
	case "-":
		data, err = io.ReadAll(o.Streams.In)
	default:
		data, err = os.ReadFile(o.Filename)
	}
	if err != nil {
		return nil, err
	}
	return bundle.Load(data)
}

func (o *Options) completeAddress() error {
	o.hostIP = o.WebhookAddress
	if host, port, err := net.SplitHostPort(o.WebhookAddress); err == nil {
		if o.hostPort, err = strconv.Atoi(port); err != nil || o.hostPort < 0 || o.hostPort > 65535 {
			return usage("--webhook-address %q: %q is not a port", o.WebhookAddress, port)
		}
		o.hostIP = host
	}
	return nil
}

// Validate refuses what cannot work.
func (o *Options) Validate() error {
	if o.SchedulerName == v1alpha1.DefaultSchedulerProfile {
		return usage("--scheduler-name %q: that is not a second scheduler", o.SchedulerName)
	}
	if o.lease == (types.NamespacedName{Namespace: metav1.NamespaceSystem, Name: v1alpha1.DefaultSchedulerLease}) {
		return usage("--lease %s: that is the stock scheduler's", o.lease)
	}
	if o.WebhookAddress != "" {
		if ip := net.ParseIP(o.hostIP); ip == nil || !ip.IsGlobalUnicast() {
			return usage("--webhook-address %q: want an IP address that is not loopback, because EndpointSlices refuse that", o.WebhookAddress)
		}
	}
	if o.Timeout < 0 {
		return usage("--timeout %s: must not be negative", o.Timeout)
	}
	if _, err := report.New(o.Output, io.Discard, false, false); err != nil {
		return usage("--output: %w", err)
	}
	if o.List {
		return nil
	}
	if _, _, err := check.Select(o.checkOptions()); err != nil {
		return &Error{Code: 2, Err: err}
	}
	return nil
}

func (o *Options) checkOptions() check.Options {
	return check.Options{Only: o.only, Disruptive: o.Disruptive, Timeout: o.Timeout}
}

// Run makes the checks. Its error is an *Error with the exit code. When ctx ends, the running check puts back what it changed and Run returns.
func (o *Options) Run(ctx context.Context) error {
	if o.List {
		return o.list()
	}
	env, err := o.env(ctx)
	if err != nil {
		return &Error{Code: 2, Err: err}
	}
	if err := check.Connect(ctx, env); err != nil {
		return &Error{Code: 2, Err: err}
	}
	// Dumb terminals cannot rewrite a line.
	live := ui.IsTerminal(o.Streams.Out) && os.Getenv("TERM") != "dumb"
	reporter, err := report.New(o.Output, o.Streams.Out, live, live && os.Getenv("NO_COLOR") == "")
	if err != nil {
		return &Error{Code: 2, Err: err}
	}
	result, err := check.Run(ctx, env, o.checkOptions(), reporter)
	if err != nil {
		return &Error{Code: 2, Err: err}
	}
	if !result.Success() {
		return &Error{Code: 1, Err: errors.New(failure(result))}
	}
	return nil
}

func failure(r *check.Report) string {
	switch {
	case r.Interrupted:
		return "interrupted"
	case r.Failed > 0:
		return fmt.Sprintf("%d of %d checks failed", r.Failed, len(r.Checks))
	}
	return fmt.Sprintf("%d of the checks that --only asked for could not be made", r.Skipped)
}

func (o *Options) list() error {
	w := tabwriter.NewWriter(o.Streams.Out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "ID\tKIND\tPROVES")
	for _, c := range check.All() {
		kind := "quick"
		if c.Disruptive {
			kind = "disruptive"
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\n", c.ID, kind, c.Title)
	}
	return w.Flush()
}
