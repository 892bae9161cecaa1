// SPDX-License-Identifier: Apache-2.0

// Package verify is the command `fairlead verify`: it makes the checks of pkg/check against the cluster of a kubeconfig.
package verify

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
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

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/check"
	"github.com/fairlead-dev/fairlead/pkg/check/report"
	"github.com/fairlead-dev/fairlead/pkg/cli/bundleflag"
	"github.com/fairlead-dev/fairlead/pkg/cli/clusterflags"
	"github.com/fairlead-dev/fairlead/pkg/cli/ui"
)

// Options are the flags of verify. Make them with NewOptions, change what you like, then Complete, Validate, Run. All fields may be empty: see the
// flags of the same names for what that means.
type Options struct {
	Streams genericiooptions.IOStreams
	Sources []check.EnvSource

	Kubeconfig, Context string
	// Name is the cluster of "fairlead up" whose context is used, in place of Context.
	Name clusterflags.Name
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
	PauseImage       string

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

// SilenceClientLogs turns off what client-go logs in the whole process: the checks report the same errors in clearer words and without breaking a
// progress line.
func SilenceClientLogs() { klog.SetLogger(logr.Discard()) }

// NewCommand returns the verify command; see NewOptions.
func NewCommand(streams genericiooptions.IOStreams, sources ...check.EnvSource) *cobra.Command {
	o := NewOptions(streams, sources...)
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Verify the second scheduler and the tunnel of a cluster",
		Long: `Verify that Pods are bound by the scheduler that they name, and that the API server
reaches nodes through the Konnectivity tunnel. The command creates Pods, a Service
and a webhook in temporary namespaces, and deletes them again.

Exit code: 0 all checks passed, 1 a check failed, 2 wrong usage or no connection to
the API server.`,
		Example: `  fairlead verify                              # the current context
  fairlead verify --name dev                   # the cluster of "fairlead up --name dev"
  fairlead verify --disruptive                 # also stop components and restore them
  fairlead verify -f bundle.yaml               # names and ports as rendered from this bundle
  fairlead verify --only tunnel -o junit       # some checks, for CI
  fairlead verify --list`,
		Args: cobra.NoArgs, SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			SilenceClientLogs()
			if err := refuseEmpty(cmd, "scheduler-name", "lease", "filename", "image", "pause-image"); err != nil {
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
	o.Name.AddFlag(f)
	bundleflag.Add(f, &o.Filename, bundleflag.Created)
	f.BoolVar(&o.Disruptive, "disruptive", o.Disruptive, "also run the checks that stop a component of the cluster and restore it")
	f.StringVar(&o.Only, "only", o.Only, "run only the checks whose ID matches this regular expression")
	f.StringVarP(&o.Output, "output", "o", o.Output, "text, json or junit")
	f.DurationVar(&o.Timeout, "timeout", o.Timeout, "time limit of each check (default: each has its own)")
	f.StringVar(&o.SchedulerName, "scheduler-name", o.SchedulerName, "name of the second scheduler's profile (default: the bundle's first, "+v1alpha1.DefaultSchedulerName+")")
	f.StringVar(&o.Lease, "lease", o.Lease, "namespace/name of the second scheduler's Lease (default: the bundle's, "+v1alpha1.DefaultNamespace+"/"+v1alpha1.DefaultSchedulerName+")")
	f.StringVar(&o.WebhookAddress, "webhook-address", o.WebhookAddress, "IP or IP:PORT of this machine that the agents can reach (default: detected, with any free port)")
	f.StringVar(&o.ServerMetricsURL, "server-metrics-url", o.ServerMetricsURL, "URL of konnectivity-server's /metrics (default: its Pods, by port-forward)")
	f.StringVar(&o.Image, "image", o.Image, "image of the Pod for logs, exec and port-forward; must have agnhost's netexec, sh, head and sleep (default "+check.DefaultProbeImage+")")
	f.StringVar(&o.PauseImage, "pause-image", o.PauseImage, "image of Pods that are only scheduled (default "+check.DefaultPauseImage+")")
	f.BoolVar(&o.List, "list", o.List, "list the checks and exit")
}

// refuseEmpty keeps an unset variable in a script from meaning the default.
func refuseEmpty(cmd *cobra.Command, flags ...string) error {
	for _, name := range flags {
		if f := cmd.Flags().Lookup(name); f.Changed && f.Value.String() == "" {
			return usage("--%s: must not be empty: remove the flag to use the default", name)
		}
	}
	return nil
}

// Complete reads the bundle and parses the text values of flags.
func (o *Options) Complete() error {
	err := o.Name.Resolve(&o.Context)
	if err != nil {
		return usage("%w", err)
	}
	if o.bundle, err = bundleflag.Load(o.Filename, o.Streams.In, o.Streams.ErrOut); err != nil {
		return usage("%w", err)
	}
	if o.Only != "" {
		if o.only, err = regexp.Compile(o.Only); err != nil {
			return usage("--only: %w", err)
		}
	}
	if o.Lease != "" {
		namespace, name, ok := strings.Cut(o.Lease, "/")
		if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
			return usage("--lease %q: must have the form namespace/name, for example %s/%s", o.Lease, v1alpha1.DefaultNamespace, v1alpha1.DefaultSchedulerName)
		}
		o.lease = types.NamespacedName{Namespace: namespace, Name: name}
	}
	return o.completeAddress()
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
		return usage("--scheduler-name %q: must not be the default scheduler", o.SchedulerName)
	}
	if o.lease == (types.NamespacedName{Namespace: metav1.NamespaceSystem, Name: v1alpha1.KubeSchedulerLease}) {
		return usage("--lease %s: must not be the default scheduler's Lease", o.lease)
	}
	if o.WebhookAddress != "" {
		if ip := net.ParseIP(o.hostIP); ip == nil || !ip.IsGlobalUnicast() {
			return usage("--webhook-address %q: must be an IP address other than loopback, which EndpointSlices do not accept", o.WebhookAddress)
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
	style := ui.StyleOf(o.Streams.Out)
	reporter, err := report.New(o.Output, o.Streams.Out, style.Live, style.Color)
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
	return fmt.Sprintf("%d of the checks selected by --only could not run", r.Skipped)
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
