// SPDX-License-Identifier: Apache-2.0

// Package proxy is the command "fairlead proxy": a proxy to the Kubernetes API with the
// flags of kubectl proxy. What it serves is in pkg/gateway/apiproxy; this package reads
// flags, opens listeners and runs a command together with the proxy.
package proxy

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/fairlead-dev/fairlead/pkg/cli/clusterflags"
	"github.com/fairlead-dev/fairlead/pkg/gateway"
	"github.com/fairlead-dev/fairlead/pkg/gateway/apiproxy"
	"github.com/fairlead-dev/fairlead/pkg/internal/secretfile"
)

const (
	defaultPort    = 8001
	defaultAddress = "127.0.0.1"
	// dialTimeout bounds a connection through a bastion, as that of apiproxy without one.
	dialTimeout = 30 * time.Second
	// defaultDrain is short: who stops the proxy with Ctrl-C waits for it.
	defaultDrain = 5 * time.Second
)

// Options are the command's flags.
type Options struct {
	Cluster clusterflags.Flags

	Port       int
	Address    string
	UnixSocket string

	APIPrefix, WWW, WWWPrefix                            string
	AcceptHosts, AcceptPaths, RejectPaths, RejectMethods string
	AcceptOrigins                                        string
	DisableFilter, AppendServerPath                      bool
	Keepalive                                            time.Duration

	// Via is ssh=USER@HOST, or empty for a connection from this machine. SSHConfig is the configuration file
	// of ssh; "none" reads none.
	Via, SSHConfig string

	AccessLog      bool
	MetricsAddress string
	DrainTimeout   time.Duration
	TokenFile      string
	TLS            bool
	InsecureNoAuth bool

	// WriteKubeconfig is a kubeconfig that holds the context ContextName while the proxy runs.
	WriteKubeconfig, ContextName string
	// Command is run together with the proxy, which ends with it.
	Command []string

	genericiooptions.IOStreams

	filter *apiproxy.Filter
	token  string
}

// NewCommand makes the command.
func NewCommand(streams genericiooptions.IOStreams) *cobra.Command {
	o := &Options{
		Cluster: clusterflags.New(), IOStreams: streams,
		Port: defaultPort, Address: defaultAddress, APIPrefix: apiproxy.DefaultAPIPrefix, WWWPrefix: apiproxy.DefaultStaticPrefix,
		AcceptHosts: apiproxy.DefaultAcceptHosts, AcceptPaths: apiproxy.DefaultAcceptPaths,
		RejectPaths: apiproxy.DefaultRejectPaths, RejectMethods: apiproxy.DefaultRejectMethods,
		AccessLog: true, DrainTimeout: defaultDrain,
	}
	cmd := &cobra.Command{
		Use: "proxy [flags] [-- COMMAND ARGS...]", Short: "Run an HTTP proxy to the Kubernetes API",
		Long: `Run an HTTP proxy between this machine and the Kubernetes API server. The proxy adds the credentials of the kubeconfig to every
request, so that curl, a browser or a script needs none. It has the flags of "kubectl proxy".

Every user of this machine can reach the default address and has your rights in the cluster as long as the proxy runs. Use
--unix-socket or --token-file to keep others out.

With a command, the proxy runs until the command ends and fairlead ends with its exit code. The command finds the proxy
through KUBECONFIG. Only it can use the proxy, which serves HTTPS and requires a token of that kubeconfig.`,
		Example: `  fairlead proxy                                   # the API at http://127.0.0.1:8001
  fairlead proxy --port 0                          # pick a free port and print it
  fairlead proxy --unix-socket /run/user/1000/api.sock
  fairlead proxy --reject-methods 'POST,PUT,PATCH,DELETE'   # read only
  fairlead proxy --write-kubeconfig ~/.kube/config # adds the context proxy-CONTEXT until the proxy ends
  fairlead proxy --via ssh=me@bastion              # an API server that only the bastion reaches
  fairlead proxy -- kubectl get pods               # runs one command with the proxy`,
		GroupID: "bundle", Annotations: map[string]string{clusterflags.TakesCommand: "true"},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.Validate(cmd, args); err != nil {
				return err
			}
			return o.Run(cmd.Context())
		},
	}
	o.Cluster.AddFlags(cmd.Flags())
	o.addFlags(cmd)
	return cmd
}

func (o *Options) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.IntVarP(&o.Port, "port", "p", o.Port, "TCP port to listen on; 0 picks a free one")
	f.StringVar(&o.Address, "address", o.Address, "IP address to listen on; one that other machines can reach needs --accept-hosts, and --token-file or --tls")
	f.StringVarP(&o.UnixSocket, "unix-socket", "u", o.UnixSocket, "listen on this Unix socket, which only you can use, instead of a TCP port")
	f.StringVar(&o.APIPrefix, "api-prefix", o.APIPrefix, "serve the API below this path")
	f.StringVarP(&o.WWW, "www", "w", o.WWW, "also serve the files of this directory")
	f.StringVarP(&o.WWWPrefix, "www-prefix", "P", o.WWWPrefix, "serve the files of --www below this path")
	f.StringVar(&o.AcceptHosts, "accept-hosts", o.AcceptHosts, "accept requests whose host matches one of these regular expressions, each as a whole")
	f.StringVar(&o.AcceptOrigins, "accept-origins", o.AcceptOrigins, "accept requests of web pages whose origin, such as https://dashboard.example.com, matches one of these regular expressions as a whole (default: the proxy's own pages)")
	f.StringVar(&o.AcceptPaths, "accept-paths", o.AcceptPaths, "accept paths that match one of these regular expressions, each as a whole")
	f.StringVar(&o.RejectPaths, "reject-paths", o.RejectPaths, "reject paths of which any part matches one of these regular expressions, even if --accept-paths accepts them")
	f.StringVar(&o.RejectMethods, "reject-methods", o.RejectMethods, "reject HTTP methods of which any part matches one of these regular expressions (example: POST,PUT,PATCH,DELETE)")
	f.BoolVar(&o.DisableFilter, "disable-filter", o.DisableFilter, "forward every request; web pages that you visit can then use the proxy with your rights")
	f.DurationVar(&o.Keepalive, "keepalive", o.Keepalive, "period of keep-alive probes on connections to the API server; 0 uses the default of 30s, negative values disable them")
	f.BoolVar(&o.AppendServerPath, "append-server-path", o.AppendServerPath, "put the path of the kubeconfig's server URL before the path of each request")
	f.StringVar(&o.Via, "via", o.Via, "reach the API server through a bastion: ssh=USER@HOST[:PORT] (default: from this machine)")
	f.StringVar(&o.SSHConfig, "ssh-config", o.SSHConfig, "SSH configuration file for --via; \"none\" reads none (default: ~/.ssh/config)")
	f.BoolVar(&o.AccessLog, "access-log", o.AccessLog, "write one line for each request to standard error")
	f.StringVar(&o.MetricsAddress, "metrics-address", o.MetricsAddress, "serve Prometheus metrics at /metrics of this host:port (default: none)")
	f.DurationVar(&o.DrainTimeout, "drain-timeout", o.DrainTimeout, "how long open requests, watches and sessions may go on after the first SIGTERM or SIGINT")
	f.StringVar(&o.TokenFile, "token-file", o.TokenFile, "require the bearer token in this file, readable by its owner only, from clients; the API server does not receive it")
	f.BoolVar(&o.TLS, "tls", o.TLS, "serve HTTPS with a certificate of this run and require a token; both are in the kubeconfig of --write-kubeconfig or of the command (default with a command: true)")
	f.BoolVar(&o.InsecureNoAuth, "insecure-no-auth", o.InsecureNoAuth, "let everyone in who can reach an --address beyond loopback, with your rights in the cluster")
	f.StringVar(&o.WriteKubeconfig, "write-kubeconfig", o.WriteKubeconfig, "add a context for the proxy to this kubeconfig, and remove it at the end")
	f.StringVar(&o.ContextName, "context-name", o.ContextName, "name of that context (default: proxy-CONTEXT)")
}

// Validate checks the flags against each other, and reads what they name.
func (o *Options) Validate(cmd *cobra.Command, args []string) error {
	if err := o.validateContexts(cmd, args); err != nil {
		return err
	}
	if err := o.validateListener(cmd.Flags().Changed); err != nil {
		return err
	}
	if cmd.Flags().Changed("via") {
		if err := validateVia(o.Via); err != nil {
			return err
		}
	}
	if o.SSHConfig != "" && o.Via == "" {
		return errors.New("--ssh-config is for a bastion: add --via ssh=USER@HOST, or remove it")
	}
	if o.WWW != "" {
		info, err := os.Stat(o.WWW)
		if err != nil {
			return fmt.Errorf("--www: %w: name a directory", err)
		}
		if !info.IsDir() {
			return fmt.Errorf("--www %s: it is not a directory: name one", o.WWW)
		}
	}
	if err := o.readToken(); err != nil {
		return err
	}
	return o.readFilter()
}

func (o *Options) validateListener(changed func(flag string) bool) error {
	switch {
	case o.UnixSocket != "" && (changed("port") || changed("address")):
		return errors.New("--unix-socket takes the place of --port and --address: leave one of them out")
	case changed("unix-socket") && o.UnixSocket == "":
		return errors.New("--unix-socket is empty: name the socket's path")
	case o.Port < 0 || o.Port > 65535:
		return fmt.Errorf("--port %d: choose a number from 0 to 65535; 0 picks a free port", o.Port)
	case o.DrainTimeout < 0:
		return fmt.Errorf("--drain-timeout %v: choose 0 or more", o.DrainTimeout)
	}
	if o.MetricsAddress != "" {
		if _, _, err := net.SplitHostPort(o.MetricsAddress); err != nil {
			return fmt.Errorf("--metrics-address %q: %w: write it as host:port", o.MetricsAddress, err)
		}
	}
	return o.validateExposure(changed)
}

// validateExposure refuses addresses that other machines may reach, unless clients are told
// apart or the user says that they need not be.
func (o *Options) validateExposure(changed func(flag string) bool) error {
	if o.UnixSocket != "" || gateway.IsLoopback(o.Address) {
		return nil
	}
	if !o.DisableFilter && !changed("accept-hosts") {
		return fmt.Errorf("--address %s: other machines may reach it, and --accept-hosts is not set: "+
			"name the hosts by which clients will call the proxy, for example --accept-hosts '^proxy\\.example\\.com$'", o.Address)
	}
	if o.TokenFile == "" && !o.TLS && !o.InsecureNoAuth {
		return fmt.Errorf("--address %s: everyone who reaches it would have your rights in the cluster: "+
			"add --token-file, or --tls with --write-kubeconfig; --insecure-no-auth lets everyone in", o.Address)
	}
	return nil
}

func (o *Options) readFilter() (err error) {
	if o.DisableFilter {
		return nil
	}
	o.filter = &apiproxy.Filter{}
	for _, list := range []struct {
		flag, value string
		parse       func(string) (apiproxy.Patterns, error)
		to          *apiproxy.Patterns
	}{
		{"accept-hosts", o.AcceptHosts, apiproxy.ParseAccept, &o.filter.AcceptHosts},
		{"accept-origins", o.AcceptOrigins, apiproxy.ParseAccept, &o.filter.AcceptOrigins},
		{"accept-paths", o.AcceptPaths, apiproxy.ParseAccept, &o.filter.AcceptPaths},
		{"reject-paths", o.RejectPaths, apiproxy.ParseReject, &o.filter.RejectPaths},
		{"reject-methods", o.RejectMethods, apiproxy.ParseReject, &o.filter.RejectMethods},
	} {
		if *list.to, err = list.parse(list.value); err != nil {
			return fmt.Errorf("--%s: %w", list.flag, err)
		}
	}
	return nil
}

func (o *Options) readToken() error {
	if o.TokenFile == "" {
		return nil
	}
	data, err := secretfile.Read(o.TokenFile)
	var exposed *secretfile.ExposedError
	switch {
	case errors.As(err, &exposed):
		return fmt.Errorf("--token-file: %w", err)
	case err != nil:
		return fmt.Errorf("--token-file: %w: name a file that holds the token", err)
	}
	if o.token = strings.TrimSpace(string(data)); o.token == "" {
		return fmt.Errorf("--token-file %s: it is empty: write a token into it, for example with \"openssl rand -hex 32\"", o.TokenFile)
	}
	return nil
}
