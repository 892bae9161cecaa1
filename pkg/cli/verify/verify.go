// Package verify is the command `fairlead verify`: it makes the checks of pkg/check against the cluster of a kubeconfig.
package verify

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/fairlead-dev/fairlead/pkg/check"
	"github.com/fairlead-dev/fairlead/pkg/check/incluster"
	"github.com/fairlead-dev/fairlead/pkg/check/report"
)

// Options are the flags of verify. Fill them in, then Complete, Validate, Run.
type Options struct {
	Streams genericiooptions.IOStreams
	Sources []check.EnvSource

	Kubeconfig, Context string
	Disruptive, List    bool
	Only, Output        string
	Timeout             time.Duration
	SchedulerName       string
	Lease               string
	WebhookAddress      string
	ServerMetricsURL    string
	Image               string

	only     *regexp.Regexp
	lease    types.NamespacedName
	hostIP   string
	hostPort int
}

// NewCommand returns the verify command. Sources are asked first whether they know the cluster; see check.EnvSource.
func NewCommand(streams genericiooptions.IOStreams, sources ...check.EnvSource) *cobra.Command {
	o := &Options{Streams: streams, Sources: sources}
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Prove that pods choose their scheduler and that the API server reaches nodes through the tunnel",
		Long: `Verify proves that the second scheduler and the Konnectivity tunnel of a cluster work. It makes pods, a Service and a webhook in
throw-away namespaces and deletes them again.

Exit code: 0 all is proved, 1 a check failed, 2 wrong usage or no connection to the API server.`,
		Example: `  fairlead verify                              # the current context
  fairlead verify --disruptive                 # also stop parts, and put them back
  fairlead verify --only tunnel -o junit       # some checks, for CI
  fairlead verify --list`,
		Args: cobra.NoArgs, SilenceUsage: true,
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
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &Error{Code: 2, Err: err} })
	o.addFlags(cmd)
	return cmd
}

func (o *Options) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig, "kubeconfig file (default: $KUBECONFIG, then ~/.kube/config)")
	f.StringVar(&o.Context, "context", o.Context, "kubeconfig context (default: the current one)")
	f.BoolVar(&o.Disruptive, "disruptive", o.Disruptive, "also make the checks that stop a part of the cluster and put it back")
	f.StringVar(&o.Only, "only", o.Only, "make only the checks whose id matches this regular expression")
	f.StringVarP(&o.Output, "output", "o", o.Output, "text, json or junit")
	f.DurationVar(&o.Timeout, "timeout", o.Timeout, "time limit of each check (default: each has its own)")
	f.StringVar(&o.SchedulerName, "scheduler-name", check.DefaultSchedulerName, "name of the second scheduler's profile")
	f.StringVar(&o.Lease, "lease", "kube-system/my-scheduler", "namespace/name of the second scheduler's Lease")
	f.StringVar(&o.WebhookAddress, "webhook-address", o.WebhookAddress, "IP or IP:PORT of this machine that the agents can reach (default: found out, any free port)")
	f.StringVar(&o.ServerMetricsURL, "server-metrics-url", o.ServerMetricsURL, "konnectivity-server's /metrics (default: asked from its pods through the API server)")
	f.StringVar(&o.Image, "image", o.Image, "image of the pod for logs, exec and port-forward: must serve agnhost's netexec and have head (default "+check.DefaultProbeImage+")")
	f.BoolVar(&o.List, "list", o.List, "list the checks and exit")
}

// Complete parses what flags hold as text.
func (o *Options) Complete() error {
	var err error
	if o.Only != "" {
		if o.only, err = regexp.Compile(o.Only); err != nil {
			return usage("--only: %w", err)
		}
	}
	namespace, name, ok := strings.Cut(o.Lease, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return usage("--lease %q: want namespace/name, for example kube-system/my-scheduler", o.Lease)
	}
	o.lease = types.NamespacedName{Namespace: namespace, Name: name}
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
	if o.SchedulerName == "" || o.SchedulerName == "default-scheduler" {
		return usage("--scheduler-name %q: that is not a second scheduler", o.SchedulerName)
	}
	if o.lease == (types.NamespacedName{Namespace: "kube-system", Name: "kube-scheduler"}) {
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

// Run makes the checks. Its error is an *Error with the exit code.
func (o *Options) Run(ctx context.Context) error {
	if o.List {
		return o.list()
	}
	// client-go logs what the checks report better themselves, and in the middle of their lines.
	klog.SetLogger(logr.Discard())
	// A second interrupt ends the process at once: the first one started the cleaning up.
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)

	env, err := o.env(ctx)
	if err != nil {
		return &Error{Code: 2, Err: err}
	}
	if err := check.Connect(ctx, env); err != nil {
		return &Error{Code: 2, Err: err}
	}
	live := isTerminal(o.Streams.Out)
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

// env asks the sources, then takes the cluster for one of which only the kubeconfig is known. Flags win over both.
func (o *Options) env(ctx context.Context) (*check.Env, error) {
	for _, source := range o.Sources {
		env, err := source(ctx, o.Kubeconfig, o.Context)
		if err != nil {
			return nil, err
		}
		if env != nil {
			return o.override(env), nil
		}
	}
	env, err := o.genericEnv()
	if err != nil {
		return nil, err
	}
	env.SchedulerName, env.Lease = o.SchedulerName, o.lease
	return o.override(env), nil
}

func (o *Options) genericEnv() (*check.Env, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.Kubeconfig
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: o.Context})
	raw, err := loader.RawConfig()
	if err != nil {
		return nil, check.WithHint(fmt.Errorf("read kubeconfig: %w", err), "--kubeconfig names the file")
	}
	name := o.Context
	if name == "" {
		name = raw.CurrentContext
	}
	if _, ok := raw.Contexts[name]; !ok {
		return nil, noContext(name, raw, rules)
	}
	cfg, err := loader.ClientConfig()
	if err != nil {
		return nil, check.WithHint(fmt.Errorf("context %q: %w", name, err), "kubectl config view")
	}
	env, err := incluster.NewEnv(cfg, o.hostIP)
	if err != nil {
		return nil, err
	}
	env.Cluster = name
	return env, nil
}

func (o *Options) override(env *check.Env) *check.Env {
	if o.SchedulerName != check.DefaultSchedulerName {
		env.SchedulerName = o.SchedulerName
	}
	if o.lease.String() != "kube-system/my-scheduler" {
		env.Lease = o.lease
	}
	if o.hostIP != "" {
		env.HostIP, env.HostPort = o.hostIP, o.hostPort
	}
	if o.ServerMetricsURL != "" {
		env.ServerMetrics = incluster.MetricsFrom(o.ServerMetricsURL)
	}
	if o.Image != "" {
		env.Probe.Image = o.Image
	}
	return env
}

// isTerminal is false on dumb terminals too: they cannot rewrite a line.
func isTerminal(out io.Writer) bool {
	f, ok := out.(*os.File)
	return ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb"
}
