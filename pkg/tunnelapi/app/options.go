// SPDX-License-Identifier: Apache-2.0

// Package app is the command fairlead-apiserver. Start with [NewCommand].
package app

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/component-base/cli/flag"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/term"

	"github.com/fairlead-dev/fairlead/pkg/gateway/resolve"
	"github.com/fairlead-dev/fairlead/pkg/internal/version"
	"github.com/fairlead-dev/fairlead/pkg/tunnelapi/internal/collect"
)

// Options are the flags.
type Options struct {
	SecureServing  *genericoptions.SecureServingOptionsWithLoopback
	Authentication *genericoptions.DelegatingAuthenticationOptions
	Authorization  *genericoptions.DelegatingAuthorizationOptions
	Audit          *genericoptions.AuditOptions
	Logging        *logs.Options
	Profiling      bool

	// Kubeconfig is for reading the ConfigMap with the front proxy's CA, and for reviews of tokens and access.
	Kubeconfig string
	// Servers are the URLs of the konnectivity-servers.
	Servers                         []string
	ServerCAFile, ServerTokenFile   string
	PollInterval, CountsInterval    time.Duration
	StaleAfter, KeepGone            time.Duration
	MaxRequestsInFlight, MaxWatches int
	MaxWatchesPerUser               int
	// ShutdownDelay is how long requests are served after SIGTERM, until the replica is no endpoint any more.
	ShutdownDelay time.Duration

	// ServeConnect serves tunnelagents/portforward.
	ServeConnect                              bool
	ClusterDomain                             string
	ConnectTimeout, ConnectIdle, ConnectDrain time.Duration
	ConnectMaxConnections, ConnectMaxPerUser  int
}

// NewOptions returns the defaults.
func NewOptions() *Options {
	o := &Options{
		SecureServing:  genericoptions.NewSecureServingOptions().WithLoopback(),
		Authentication: genericoptions.NewDelegatingAuthenticationOptions(),
		Authorization:  genericoptions.NewDelegatingAuthorizationOptions(),
		Audit:          genericoptions.NewAuditOptions(),
		Logging:        logs.NewOptions(),
		ServerCAFile:   "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt",
		PollInterval:   time.Second, CountsInterval: 10 * time.Second, StaleAfter: 10 * time.Second, KeepGone: 10 * time.Minute,
		MaxRequestsInFlight: 400, MaxWatches: 2000, MaxWatchesPerUser: 500,
		ShutdownDelay:  3 * time.Second,
		ClusterDomain:  resolve.DefaultClusterDomain,
		ConnectTimeout: 30 * time.Second, ConnectIdle: 4 * time.Hour, ConnectDrain: 10 * time.Second,
		ConnectMaxConnections: 1000, ConnectMaxPerUser: 100,
	}
	// The server needs no privileges, and its port none either: the Service maps 443 to it.
	o.SecureServing.BindPort = 6443
	// One kube-apiserver sends the requests of all its clients over one connection.
	o.SecureServing.HTTP2MaxStreamsPerConnection = 1000
	// kube-apiserver passes on the UID since 1.32, under the name that it uses by default.
	o.Authentication.RequestHeader.UIDHeaders = []string{"x-remote-uid"}
	return o
}

// Flags returns the flags by sections.
func (o *Options) Flags() (all flag.NamedFlagSets) {
	f := all.FlagSet("tunnel")
	f.StringArrayVar(&o.Servers, "konnectivity-server", o.Servers, "URL at which konnectivity-servers show their state: unix:///PATH of --state-socket, or https://HOST:PORT of --state-port. All addresses of HOST are asked. Repeat the flag for several.")
	f.StringVar(&o.ServerCAFile, "konnectivity-server-ca-file", o.ServerCAFile, "CA of the servers' certificates, which must be for HOST.")
	f.StringVar(&o.ServerTokenFile, "konnectivity-server-token-file", o.ServerTokenFile, "File with the bearer token for servers at https URLs.")
	f.DurationVar(&o.PollInterval, "poll-interval", o.PollInterval, "Time between two requests to each server.")
	f.DurationVar(&o.CountsInterval, "counts-interval", o.CountsInterval, "How often an object is updated at most if only its counts have changed.")
	f.DurationVar(&o.StaleAfter, "stale-after", o.StaleAfter, "How long the answer of a server counts as true if no newer one comes.")
	f.DurationVar(&o.KeepGone, "keep-gone", o.KeepGone, "How long agents that have disconnected, and servers that do not answer, are shown.")
	c := all.FlagSet("connect")
	c.BoolVar(&o.ServeConnect, "connect", o.ServeConnect, "Serve tunnelagents/portforward: TCP connections through agents, for users who may connect to the destination. It needs --state-connect of the konnectivity-servers.")
	c.StringVar(&o.ClusterDomain, "cluster-domain", o.ClusterDomain, "Suffix of the cluster's DNS names.")
	c.DurationVar(&o.ConnectTimeout, "connect-timeout", o.ConnectTimeout, "Time limit for opening a connection.")
	c.DurationVar(&o.ConnectIdle, "connect-idle-timeout", o.ConnectIdle, "How long a connection may carry no bytes before it is reset. 0 never resets it.")
	c.DurationVar(&o.ConnectDrain, "connect-drain-timeout", o.ConnectDrain, "Time that open connections have to end after --shutdown-delay-duration, before they are reset.")
	c.IntVar(&o.ConnectMaxConnections, "connect-max-connections", o.ConnectMaxConnections, "Connections at a time. Further ones are refused with status 429.")
	c.IntVar(&o.ConnectMaxPerUser, "connect-max-connections-per-user", o.ConnectMaxPerUser, "Connections of one user at a time.")
	k := all.FlagSet("kubernetes")
	k.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig, "Kubeconfig for kube-apiserver. Empty uses the Pod's ServiceAccount. It is the default of --authentication-kubeconfig and --authorization-kubeconfig.")
	k.IntVar(&o.MaxRequestsInFlight, "max-requests-inflight", o.MaxRequestsInFlight, "Requests at a time, watches aside. Further ones are refused with status 429.")
	k.IntVar(&o.MaxWatches, "max-watches", o.MaxWatches, "Watches at a time. Further ones are refused with status 429.")
	k.IntVar(&o.MaxWatchesPerUser, "max-watches-per-user", o.MaxWatchesPerUser, "Watches of one user at a time. Further ones are refused with status 429.")
	k.DurationVar(&o.ShutdownDelay, "shutdown-delay-duration", o.ShutdownDelay, "How long requests are served after SIGTERM, until no client is sent to this replica any more. /readyz fails meanwhile.")
	k.BoolVar(&o.Profiling, "profiling", o.Profiling, "Serve profiles at /debug/pprof, to clients that are authorized for the path.")
	o.SecureServing.AddFlags(all.FlagSet("secure serving"))
	o.Authentication.AddFlags(all.FlagSet("authentication"))
	o.Authorization.AddFlags(all.FlagSet("authorization"))
	o.Audit.AddFlags(all.FlagSet("audit"))
	logsapi.AddFlags(o.Logging, all.FlagSet("logs"))
	return all
}

// Validate checks the flags.
func (o *Options) Validate() error {
	errs := o.SecureServing.Validate()
	errs = append(errs, o.Authentication.Validate()...)
	errs = append(errs, o.Authorization.Validate()...)
	errs = append(errs, o.Audit.Validate()...)
	if len(o.Servers) == 0 {
		errs = append(errs, errors.New("--konnectivity-server must name at least one server: unix:///PATH or https://HOST:PORT"))
	}
	secure := false
	for _, s := range o.Servers {
		u, err := collect.ParseURL(s)
		if err != nil {
			errs = append(errs, fmt.Errorf("--konnectivity-server: %w", err))
			continue
		}
		secure = secure || u.Scheme == "https"
	}
	if secure && (o.ServerTokenFile == "" || o.ServerCAFile == "") {
		errs = append(errs, errors.New("--konnectivity-server with an https URL needs --konnectivity-server-token-file and --konnectivity-server-ca-file"))
	}
	for name, d := range map[string]time.Duration{"poll-interval": o.PollInterval, "counts-interval": o.CountsInterval, "stale-after": o.StaleAfter, "keep-gone": o.KeepGone} {
		if d < 100*time.Millisecond {
			errs = append(errs, fmt.Errorf("--%s must be at least 100ms, not %v", name, d))
		}
	}
	if o.StaleAfter < 2*o.PollInterval {
		errs = append(errs, fmt.Errorf("--stale-after (%v) must be at least twice --poll-interval (%v): one late answer would make all agents unknown", o.StaleAfter, o.PollInterval))
	}
	if o.ShutdownDelay < 0 {
		errs = append(errs, fmt.Errorf("--shutdown-delay-duration must not be negative: %v", o.ShutdownDelay))
	}
	errs = append(errs, o.validateConnect()...)
	for name, n := range map[string]int{"max-requests-inflight": o.MaxRequestsInFlight, "max-watches": o.MaxWatches, "max-watches-per-user": o.MaxWatchesPerUser} {
		if n < 1 {
			errs = append(errs, fmt.Errorf("--%s must be at least 1, not %d", name, n))
		}
	}
	return errors.Join(errs...)
}

// complete fills in what follows from other flags.
func (o *Options) complete() error {
	if o.Authentication.RemoteKubeConfigFile == "" {
		o.Authentication.RemoteKubeConfigFile = o.Kubeconfig
	}
	if o.Authorization.RemoteKubeConfigFile == "" {
		o.Authorization.RemoteKubeConfigFile = o.Kubeconfig
	}
	if err := o.SecureServing.MaybeDefaultWithSelfSignedCerts("localhost", nil, []net.IP{net.IPv4(127, 0, 0, 1)}); err != nil {
		return fmt.Errorf("make a certificate to serve with: %w: set --tls-cert-file and --tls-private-key-file", err)
	}
	return nil
}

// NewCommand returns the command.
func NewCommand() *cobra.Command {
	o := NewOptions()
	cmd := &cobra.Command{
		Use:   "fairlead-apiserver",
		Short: "Serve the state of the tunnel as Kubernetes API tunnel.fairlead.dev",
		Long:  "Serve the state of the tunnel as Kubernetes API tunnel.fairlead.dev, behind kube-apiserver's aggregation layer.",
		Example: `  # in a Pod on each control plane node, next to konnectivity-server
  fairlead-apiserver --secure-port=8443 --konnectivity-server=unix:///run/konnectivity/state.socket`,
		Args:          cobra.NoArgs,
		Version:       version.Get().String(),
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(*cobra.Command, []string) error {
			if err := logsapi.ValidateAndApply(o.Logging, nil); err != nil {
				return err
			}
			if err := o.Validate(); err != nil {
				return fmt.Errorf("flags: %w", err)
			}
			return Run(genericapiserver.SetupSignalContext(), o)
		},
	}
	sets := o.Flags()
	for _, name := range sets.Order {
		cmd.Flags().AddFlagSet(sets.FlagSets[name])
	}
	cmd.Flags().SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName { return flag.WordSepNormalizeFunc(nil, name) })
	columns, _, _ := term.TerminalSize(cmd.OutOrStdout())
	flag.SetUsageAndHelpFunc(cmd, sets, columns)
	return cmd
}
