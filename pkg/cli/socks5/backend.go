// SPDX-License-Identifier: Apache-2.0

package socks5

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"

	"github.com/fairlead-dev/fairlead/pkg/cli/clusterflags"
	"github.com/fairlead-dev/fairlead/pkg/cli/serving"
	"github.com/fairlead-dev/fairlead/pkg/gateway"
	"github.com/fairlead-dev/fairlead/pkg/gateway/dial"
	"github.com/fairlead-dev/fairlead/pkg/gateway/kubeconfig"
	"github.com/fairlead-dev/fairlead/pkg/gateway/resolve"
)

// connect finds the cluster, the path into it and the resolver for its names. With an SSH
// path the API server is reached through the bastion, too.
func (o *Options) connect(ctx context.Context, registry prometheus.Registerer) (*rest.Config, error) {
	if o.resolver != nil && o.dialer != nil {
		return nil, nil
	}
	target, err := o.Cluster.Load()
	if err != nil {
		return nil, err
	}
	target.Config.QPS = -1 // names and reviews of many clients; the API server has its own limits
	klog.ClearLogger()     // Load silences client-go, but audit lines are logs
	apiServer, err := apiServerAddress(target.Config)
	if err != nil {
		return nil, err
	}
	options := o.dialOptions(target.Config, apiServer)
	options.Registry = registry
	path, err := dial.New(o.Via, options)
	if err != nil {
		return nil, fmt.Errorf("--via %s: %w", o.Via, err)
	}
	o.dialer = path
	if strings.HasPrefix(o.Via, "ssh=") {
		if target.Config.Dial, err = dial.SSHDialContext(path); err != nil {
			_ = path.Close()
			return nil, err
		}
	}
	if err := o.reach(ctx, target); err != nil {
		_ = path.Close()
		return nil, err
	}
	client, err := kubernetes.NewForConfig(target.Config)
	if err != nil {
		_ = path.Close()
		return nil, fmt.Errorf("make a client for %s: %w", target, err)
	}
	o.resolver = resolve.New(client, o.resolveOptions(target.Namespace, apiServer))
	return target.Config, nil
}

// resolveOptions are those of the path. The network path connects to addresses, so it needs those of
// hosts outside of the cluster, too. So does an agent's path: the agent of upstream denies no address,
// so a name must not reach it. Where destinations are judged, each is judged by the address that
// is dialed: the name of a Pod or of a host alone does not say what is behind it.
func (o *Options) resolveOptions(namespace, apiServer string) resolve.Options {
	r := resolve.Options{Namespace: namespace, ClusterDomain: o.ClusterDomain, PodsByName: (o.Via == dial.ViaPortForward || o.Via == dial.ViaAPI) && !o.judges(), APIServer: apiServer}
	if o.Via == dial.ViaNetwork || o.Via == dial.ViaDirect || o.Via == dial.ViaAPI && o.judges() {
		r.LookUp = resolve.SystemLookUp
	}
	return r
}

// reach makes sure that the API server answers. What fails on the way through a bastion says more
// than the answer that is missing: a client without that bastion would not help.
func (o *Options) reach(ctx context.Context, target clusterflags.Cluster) error {
	through := target.Config.Dial
	if through == nil {
		return clusterflags.Reach(ctx, target)
	}
	var failed atomic.Pointer[error]
	tried := target
	tried.Config = rest.CopyConfig(target.Config)
	tried.Config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := through(ctx, network, address)
		if err != nil {
			failed.Store(&err)
		}
		return c, err
	}
	err := clusterflags.Reach(ctx, tried)
	if bastion := failed.Load(); err != nil && bastion != nil {
		return fmt.Errorf("--via %s: %w", o.Via, *bastion)
	}
	return err
}

func (o *Options) dialOptions(config *rest.Config, apiServer string) dial.Options {
	return dial.Options{
		Config:         config,
		APIServer:      apiServer,
		Timeout:        o.DialTimeout,
		MaxConnections: o.MaxConns,
		Alternatives: func(ctx context.Context, d gateway.Destination) ([]gateway.Destination, error) {
			if r, ok := o.resolver.(*resolve.Resolver); ok {
				return r.Alternatives(ctx, d)
			}
			return nil, nil
		},
		Logger: klog.Background(),
		Direct: o.Direct,
		SSH:    dial.SSHOptions{ConfigFile: o.SSHConfig},
		API:    dial.APIOptions{ByAddress: o.judges()},
	}
}

// addContext adds the context of --write-kubeconfig, which reaches the API server through the
// proxy. remove takes it out again.
func (o *Options) addContext(proxy *url.URL) (remove func(), err error) {
	if o.WriteKubeconfig == "" {
		return func() {}, nil
	}
	entry, warnings, err := o.entry("socks5-", proxy)
	if err != nil {
		return nil, fmt.Errorf("--write-kubeconfig: %w", err)
	}
	for _, w := range warnings {
		fmt.Fprintf(o.Streams.ErrOut, "Warning: %s\n", w)
	}
	return serving.AddContext(o.WriteKubeconfig, entry, o.Streams.ErrOut)
}

// entry is the current context, as the flags change it, with the proxy before its API server. Its name is that of the
// context with a prefix, unless the user has chosen one. Without a context there are the flags alone.
func (o *Options) entry(prefix string, proxy *url.URL) (e kubeconfig.Entry, warnings []string, err error) {
	source, err := o.Cluster.Kubeconfig()
	if err != nil {
		return e, nil, err
	}
	from := source.CurrentContext
	if e, warnings, err = kubeconfig.Through(&source, from, cmp.Or(o.ContextName, prefix+cmp.Or(from, "server")), proxy); err != nil {
		return e, nil, err
	}
	return e, warnings, cmp.Or(o.checkCredentials(e, proxy), o.checkCertificate(e))
}

// commandEnvironment is what sends the command through the proxy: the variables of proxies, and
// KUBECONFIG with the current context for Kubernetes clients, some of which ignore those
// variables for an API server on loopback. remove removes that file.
func (o *Options) commandEnvironment(proxy *url.URL, config *rest.Config) (env map[string]string, remove func(), err error) {
	env, remove = environment(proxy), func() {}
	if config == nil || o.withoutContext() {
		return env, remove, nil
	}
	entry, _, err := o.entry("", proxy) // its warnings are for those who choose a proxy-url
	if err != nil {
		fmt.Fprintf(o.Streams.ErrOut, "Warning: Kubernetes clients of the command do not use the proxy: %v\n", err)
		return env, remove, nil
	}
	path, remove, err := serving.TemporaryKubeconfig(entry)
	if err != nil {
		return nil, nil, err
	}
	env["KUBECONFIG"] = path
	return env, remove, nil
}

// withoutContext reports whether the cluster is that of this Pod, and no context of a kubeconfig.
func (o *Options) withoutContext() bool {
	if *o.Cluster.APIServer != "" {
		return false
	}
	source, err := o.Cluster.ToRawKubeConfigLoader().RawConfig()
	return err == nil && source.Contexts[cmp.Or(*o.Cluster.Context, source.CurrentContext)] == nil
}

// checkCredentials refuses a context whose clients the proxy would not let in: a kubeconfig has a place for the password of a proxy,
// and shows it the user's client certificate, but no token.
func (o *Options) checkCredentials(entry kubeconfig.Entry, proxy *url.URL) error {
	u := entry.User
	certificate := u != nil && (u.ClientCertificate != "" || len(u.ClientCertificateData) > 0 || u.Exec != nil)
	if proxy.User != nil || o.InsecureNoAuth || o.ClientCA != "" && certificate {
		return nil
	}
	return fmt.Errorf("clients of the context %s could not log in to the proxy, because a kubeconfig has no place for a proxy's token: "+
		"add --password-file, or --client-ca and use a kubeconfig with a client certificate of that authority", entry.Name)
}

// checkCertificate refuses a context whose clients would not accept the proxy's certificate.
func (o *Options) checkCertificate(entry kubeconfig.Entry) error {
	if o.TLSCert == "" {
		return nil
	}
	chain, err := cert.CertsFromFile(o.TLSCert)
	if err != nil {
		return fmt.Errorf("--tls-cert: %w", err)
	}
	return entry.CheckProxyCertificate(chain)
}

// apiServerAddress returns host:port of the API server, in the form of --allow: kubectl goes
// there through the proxy.
func apiServerAddress(config *rest.Config) (string, error) {
	u, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return "", fmt.Errorf("read the API server's address: %w", err)
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return net.JoinHostPort(u.Hostname(), port), nil
}
