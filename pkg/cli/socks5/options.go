// SPDX-License-Identifier: Apache-2.0

// Package socks5 is the command "fairlead socks5": a SOCKS5 and HTTP CONNECT proxy into the
// cluster network.
package socks5

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/fairlead-dev/fairlead/pkg/cli/clusterflags"
	"github.com/fairlead-dev/fairlead/pkg/gateway"
	"github.com/fairlead-dev/fairlead/pkg/gateway/dial"
	"github.com/fairlead-dev/fairlead/pkg/gateway/resolve"
	gatewaysocks5 "github.com/fairlead-dev/fairlead/pkg/gateway/socks5"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/destinations"
)

// DefaultListen is the address of the proxy, with the port that SOCKS5 is registered for.
const DefaultListen = "127.0.0.1:1080"

// Options are the flags.
type Options struct {
	Streams genericiooptions.IOStreams
	Cluster clusterflags.Flags

	Listen, Via               string
	URLFile, PasswordFile     string
	TLSCert, TLSKey, ClientCA string
	TokenReview               bool
	TokenAudiences            []string
	InsecureNoAuth            bool
	InsecureNoTLS             bool
	InsecureNoAuthorization   bool
	InsecureAllowLocal        bool
	Allow, Only, Deny         []string
	Rules                     string
	AccessReview              bool
	AuditLog, MetricsAddress  string
	HandshakeTimeout          time.Duration
	DialTimeout, DrainTimeout time.Duration
	// ShutdownDelay is how long new connections are accepted after SIGTERM.
	ShutdownDelay              time.Duration
	MaxConns, MaxConnsOfClient int
	WriteKubeconfig            string
	// ContextName is the name of the context in WriteKubeconfig; default socks5-CONTEXT.
	ContextName string
	// ClusterDomain is the suffix of the cluster's DNS names.
	ClusterDomain string
	// SSHConfig is the configuration file of --via ssh; "none" reads none.
	SSHConfig string
	// Direct is the konnectivity-server of --via direct.
	Direct dial.DirectOptions
	// Command runs with the proxy in its environment.
	Command []string

	// Tests set these.
	resolver gateway.Resolver
	dialer   gateway.Dialer
}

// NewOptions returns options with their defaults.
func NewOptions(streams genericiooptions.IOStreams) *Options {
	return &Options{
		Streams: streams, Cluster: clusterflags.New(), Listen: DefaultListen, Via: "portforward", ClusterDomain: resolve.DefaultClusterDomain, DrainTimeout: 10 * time.Second,
		HandshakeTimeout: gatewaysocks5.DefaultHandshakeTimeout, DialTimeout: gatewaysocks5.DefaultDialTimeout,
		MaxConns: gatewaysocks5.DefaultMaxConns, MaxConnsOfClient: gatewaysocks5.DefaultMaxConnsPerClient,
	}
}

const long = `Serve SOCKS5 and HTTP CONNECT on one port, into the cluster network. Programs of
this machine then reach Services, Pods and nodes by name or address.

On loopback, clients need a random password. The proxy's URL with the password is
written to a file that only you can read, and given to COMMAND in its environment.
KUBECONFIG of COMMAND names a temporary file whose context leads through the proxy.
On other addresses the proxy needs TLS, and client certificates, bearer tokens or
a password of yours.

Destinations other than Services, Pods, nodes and the API server of your kubeconfig
need --allow. Other loopback, link-local and metadata addresses are always denied.`

const examples = `  # Run one program with the cluster network
  fairlead socks5 -- curl http://hello-app.default:8080

  # Run kubectl behind a bastion
  fairlead socks5 --via ssh=me@bastion.example.com -- kubectl get nodes

  # Serve until Ctrl-C
  fairlead socks5

  # Serve a team: certificates, and what each user may reach by RBAC
  fairlead socks5 --listen :1080 --tls-cert tls.crt --tls-key tls.key --client-ca ca.crt --access-review`

// NewCommand makes the command.
func NewCommand(streams genericiooptions.IOStreams) *cobra.Command {
	o := NewOptions(streams)
	cmd := &cobra.Command{
		Use: "socks5 [flags] [-- COMMAND ARGS...]", Short: "Serve a SOCKS5 and HTTP CONNECT proxy to the cluster network", Long: long, Example: examples, GroupID: "bundle",
		Annotations: map[string]string{clusterflags.TakesCommand: "true"},
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && cmd.ArgsLenAtDash() != 0 {
				return fmt.Errorf("%q is not expected here: write -- before a command to run", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Command = args
			if err := o.Validate(); err != nil {
				return err
			}
			return o.Run(cmd.Context())
		},
	}
	o.addFlags(cmd)
	return cmd
}

func (o *Options) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.Listen, "listen", o.Listen, "address and port of the proxy; port 0 picks a free one")
	f.StringVar(&o.Via, "via", o.Via, "path into the cluster: portforward, api, direct, network or ssh=USER@HOST")
	f.StringVar(&o.URLFile, "url-file", "", "file for the proxy's URL with the random password (default: in $XDG_RUNTIME_DIR or the state directory)")
	f.StringVar(&o.PasswordFile, "password-file", "", "file with name:password for clients, readable by its owner only")
	f.StringVar(&o.TLSCert, "tls-cert", "", "serving certificate; clients then need TLS. Reloaded when it changes")
	f.StringVar(&o.TLSKey, "tls-key", "", "key of the serving certificate")
	f.StringVar(&o.ClientCA, "client-ca", "", "accept client certificates of this CA: the common name is the user, the organizations are the groups")
	f.BoolVar(&o.TokenReview, "token-review", false, "accept bearer tokens that the API server accepts")
	f.StringSliceVar(&o.TokenAudiences, "token-audience", nil, "audiences that tokens must be valid for (default: those of the API server)")
	f.BoolVar(&o.InsecureNoAuth, "insecure-no-auth", false, "let clients in without any credentials")
	f.BoolVar(&o.InsecureNoAuthorization, "insecure-no-authorization", false, "listen beyond loopback without --access-review and --rules: every client reaches all Services, Pods and nodes")
	f.BoolVar(&o.InsecureNoTLS, "insecure-no-tls", false, "listen beyond loopback without TLS: credentials and data cross the network in clear text")
	f.BoolVar(&o.InsecureAllowLocal, "insecure-allow-local", false, "allow loopback, link-local and metadata addresses, for clusters whose nodes run on this machine")
	f.StringSliceVar(&o.Allow, "allow", nil, "allow these addresses outside of the cluster: CIDRs, addresses or host names (*.example.org), each with an optional :port")
	f.StringSliceVar(&o.Only, "only", nil, "allow no destinations but these and the API server, in the form of --allow; Services, Pods and nodes, too")
	f.StringSliceVar(&o.Deny, "deny", nil, "deny these destinations, in the form of --allow")
	f.StringVar(&o.Rules, "rules", "", "file with rules by user, group, kind, namespace, name and port. Reloaded when it changes")
	f.BoolVar(&o.AccessReview, "access-review", false, "let the API server authorize: clients need the verb create on services/proxy, pods/portforward or nodes/proxy")
	f.StringVar(&o.AuditLog, "audit-log", "", "file for one line of JSON per connection (default: log lines on standard error)")
	f.StringVar(&o.MetricsAddress, "metrics-address", "", "address and port that serve /metrics and /healthz (default: none)")
	f.DurationVar(&o.HandshakeTimeout, "handshake-timeout", o.HandshakeTimeout, "time that clients have for TLS, authentication and the request")
	f.DurationVar(&o.DialTimeout, "dial-timeout", o.DialTimeout, "time limit for opening a connection to a destination")
	f.DurationVar(&o.DrainTimeout, "drain-timeout", o.DrainTimeout, "time that open connections have after SIGTERM or Ctrl-C; a second signal ends at once")
	f.DurationVar(&o.ShutdownDelay, "shutdown-delay-duration", 0, "time after SIGTERM in which new connections are still accepted, until no client is sent to this proxy any more. /readyz fails meanwhile")
	f.IntVar(&o.MaxConns, "max-connections", o.MaxConns, "limit for open connections")
	f.IntVar(&o.MaxConnsOfClient, "max-connections-per-client", o.MaxConnsOfClient, "limit for open connections of one user with a certificate or a token, or of one client address")
	f.StringVar(&o.WriteKubeconfig, "write-kubeconfig", "", "kubeconfig file that gets a context with this proxy as its proxy-url; the context is removed at the end")
	f.StringVar(&o.ContextName, "context-name", "", "name of that context (default: socks5-CONTEXT)")
	f.StringVar(&o.ClusterDomain, "cluster-domain", o.ClusterDomain, "suffix of the cluster's DNS names")
	f.StringVar(&o.SSHConfig, "ssh-config", "", "SSH configuration file for --via ssh=USER@HOST; \"none\" reads none (default: ~/.ssh/config)")
	f.StringVar(&o.Direct.Socket, "server-socket", "", "Unix socket of the konnectivity-server, for --via direct")
	f.StringVar(&o.Direct.Address, "server-address", "", "HOST:PORT of the konnectivity-server, for --via direct; needs --server-cert, --server-key and --server-ca")
	f.StringVar(&o.Direct.Mode, "server-mode", dial.ModeHTTPConnect, "protocol of the konnectivity-server: http-connect or grpc")
	f.StringVar(&o.Direct.CertFile, "server-cert", "", "client certificate for the konnectivity-server")
	f.StringVar(&o.Direct.KeyFile, "server-key", "", "key of that certificate")
	f.StringVar(&o.Direct.CAFile, "server-ca", "", "CA of the konnectivity-server's certificate")
	f.StringVar(&o.Direct.ServerName, "server-name", "", "name in the konnectivity-server's certificate (default: the host of --server-address)")
	o.Cluster.AddFlags(f)
}

// Validate checks the flags.
func (o *Options) Validate() error {
	if err := validateVia(o.Via); err != nil {
		return err
	}
	for flag, list := range map[string][]string{"allow": o.Allow, "only": o.Only, "deny": o.Deny} {
		if _, err := destinations.ParseRules(strings.Join(list, ",")); err != nil {
			return fmt.Errorf("--%s: %w", flag, err)
		}
	}
	if o.HandshakeTimeout <= 0 || o.DialTimeout <= 0 || o.MaxConns <= 0 || o.MaxConnsOfClient <= 0 || o.DrainTimeout < 0 || o.ShutdownDelay < 0 {
		return errors.New("timeouts and limits must be greater than zero")
	}
	if o.SSHConfig != "" && !strings.HasPrefix(o.Via, dial.ViaSSH) {
		return fmt.Errorf("--ssh-config belongs to --via ssh=USER@HOST, not to --via %s: remove it", o.Via)
	}
	return errors.Join(o.validateDirect(), o.validateTLS(), o.validateAuth(), o.validateExposure())
}

func validateVia(via string) error {
	target, ssh := strings.CutPrefix(via, "ssh=")
	if ssh && target != "" && !strings.HasPrefix(target, "-") || slices.Contains([]string{dial.ViaPortForward, dial.ViaDirect, dial.ViaNetwork, dial.ViaAPI}, via) {
		return nil
	}
	return fmt.Errorf("--via %q: choose portforward, api, direct, network or ssh=USER@HOST", via)
}

func (o *Options) validateDirect() error {
	switch d := o.Direct; {
	case o.Via != "direct" && d != (dial.DirectOptions{Mode: d.Mode}):
		return fmt.Errorf("the flags --server-… belong to --via direct, not to --via %s: set --via direct, or remove them", o.Via)
	case o.Via == "direct" && (d.Socket == "") == (d.Address == ""):
		return errors.New("--via direct needs a konnectivity-server: set either --server-socket or --server-address")
	}
	return nil
}

func (o *Options) validateTLS() error {
	switch {
	case (o.TLSCert == "") != (o.TLSKey == ""):
		return errors.New("--tls-cert and --tls-key belong together: set both")
	case o.ClientCA != "" && o.TLSCert == "":
		return errors.New("--client-ca needs --tls-cert and --tls-key: certificates are part of TLS")
	}
	return nil
}

func (o *Options) validateAuth() error {
	switch {
	case o.InsecureNoAuth && (o.PasswordFile != "" || o.ClientCA != "" || o.TokenReview || o.URLFile != ""):
		return errors.New("--insecure-no-auth lets all clients in: remove it, or the flags for credentials")
	case len(o.TokenAudiences) > 0 && !o.TokenReview:
		return errors.New("--token-audience needs --token-review")
	case o.AccessReview && o.ClientCA == "" && !o.TokenReview:
		return errors.New("--access-review needs users that the API server knows: set --client-ca or --token-review")
	case len(o.Command) > 0 && !o.InsecureNoAuth && o.PasswordFile == "" && !o.randomPassword():
		return errors.New("a command to run can only use a password: add --password-file, or remove --client-ca and --token-review")
	}
	return nil
}

// randomPassword reports whether the proxy makes its own password.
func (o *Options) randomPassword() bool {
	return !o.InsecureNoAuth && o.PasswordFile == "" && o.ClientCA == "" && !o.TokenReview
}

// validateExposure refuses addresses beyond loopback that would not be protected.
func (o *Options) validateExposure() error {
	host, _, err := net.SplitHostPort(o.Listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	if host == "localhost" || net.ParseIP(host).IsLoopback() {
		return nil
	}
	switch {
	case o.TLSCert == "" && !o.InsecureNoTLS:
		return fmt.Errorf("--listen %s is beyond loopback and has no TLS: set --tls-cert and --tls-key, or --insecure-no-tls", o.Listen)
	case o.randomPassword():
		return fmt.Errorf("--listen %s is beyond loopback: set --client-ca, --token-review or --password-file, or --insecure-no-auth", o.Listen)
	case !o.AccessReview && o.Rules == "" && !o.InsecureNoAuth && !o.InsecureNoAuthorization:
		return fmt.Errorf("--listen %s is beyond loopback, and every client would reach all Services, Pods and nodes: set --access-review or --rules, or --insecure-no-authorization", o.Listen)
	}
	return nil
}
