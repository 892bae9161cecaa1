// SPDX-License-Identifier: Apache-2.0

package socks5

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/pkg/cli/serving"
	"github.com/fairlead-dev/fairlead/pkg/gateway"
	"github.com/fairlead-dev/fairlead/pkg/gateway/auth"
	"github.com/fairlead-dev/fairlead/pkg/gateway/dial"
	"github.com/fairlead-dev/fairlead/pkg/gateway/resolve"
	"github.com/fairlead-dev/fairlead/pkg/gateway/rules"
	gatewaysocks5 "github.com/fairlead-dev/fairlead/pkg/gateway/socks5"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/destinations"
)

// Run serves until ctx ends or the command does.
func (o *Options) Run(ctx context.Context) error {
	background, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	registry := prometheus.NewRegistry()
	config, err := o.connect(ctx, registry)
	if err != nil {
		return err
	}
	if c, ok := o.dialer.(io.Closer); ok {
		defer c.Close() //nolint:errcheck // the process ends
	}
	login, authenticator, err := o.authenticator(config)
	if err != nil {
		return err
	}
	audit, err := newAudit(o.AuditLog)
	if err != nil {
		return fmt.Errorf("--audit-log: %w", err)
	}
	defer audit.Close() //nolint:errcheck // its lines are written
	l, err := o.listen(ctx)
	if err != nil {
		return err
	}
	defer l.Close()
	cfg := gatewaysocks5.Config{
		Resolver: o.resolver, Dialer: o.dialer, Authenticator: authenticator, Audit: audit.Record,
		HandshakeTimeout: o.HandshakeTimeout, DialTimeout: o.DialTimeout, MaxConns: o.mostConns(), MaxConnsPerClient: o.MaxConnsOfClient,
		Failures: o.failures(),
	}
	if cfg.Authorizer, err = o.authorizer(config, l.Addr()); err != nil {
		return err
	}
	if o.TLSCert != "" {
		if cfg.TLS, err = auth.NewTLS(background, auth.TLSFiles{Cert: o.TLSCert, Key: o.TLSKey, ClientCA: o.ClientCA}); err != nil {
			return err
		}
	}
	cfg.Metrics = gatewaysocks5.NewMetrics(registry)
	stopMetrics, err := serving.Metrics(ctx, o.MetricsAddress, registry, o.Streams.ErrOut)
	if err != nil {
		return err
	}
	defer stopMetrics()
	u := proxyURL(serving.LocalAddress(l.Addr()), login, cfg.TLS != nil)
	remove, err := o.announce(u, l.Addr(), config)
	if err != nil {
		return err
	}
	remove = sync.OnceFunc(remove)
	defer remove()
	if len(o.Command) == 0 { // a second signal ends the process at once, while connections drain
		defer context.AfterFunc(ctx, remove)()
	}
	var env map[string]string
	if len(o.Command) > 0 {
		var removeKubeconfig func()
		if env, removeKubeconfig, err = o.commandEnvironment(u, config); err != nil {
			return err
		}
		defer removeKubeconfig()
	}
	return o.serve(ctx, gatewaysocks5.NewServer(cfg), l, env)
}

func (o *Options) authenticator(config *rest.Config) (*auth.Login, *auth.Authenticator, error) {
	a := &auth.Authenticator{Certificates: o.ClientCA != ""}
	if o.InsecureNoAuth {
		a.Anonymous = &user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}}
		return nil, a, nil
	}
	if o.TokenReview {
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return nil, nil, err
		}
		a.Tokens = auth.NewTokens(client.AuthenticationV1().TokenReviews(), o.TokenAudiences)
	}
	var login *auth.Login
	switch {
	case o.PasswordFile != "":
		l, err := auth.ReadLogin(o.PasswordFile)
		if err != nil {
			return nil, nil, fmt.Errorf("--password-file: %w", err)
		}
		login = &l
	case o.randomPassword():
		l := auth.RandomLogin(ownUser)
		login = &l
	}
	if login == nil {
		return nil, a, nil
	}
	var err error
	a.Password, err = auth.NewPassword(*login)
	return login, a, err
}

func (o *Options) authorizer(config *rest.Config, self net.Addr) (*rules.Authorizer, error) {
	a := &rules.Authorizer{AllowLocal: o.InsecureAllowLocal, ClusterDomain: o.ClusterDomain}
	if r, ok := o.resolver.(*resolve.Resolver); ok {
		a.Namespace, a.APIServers, a.ServicesOf = r.Namespace(), r.APIServers, r.ServicesOf
	}
	if config != nil {
		address, err := apiServerAddress(config)
		if err != nil {
			return nil, err
		}
		a.APIServer = address
		if host, _, err := net.SplitHostPort(self.String()); err == nil && gateway.IsLoopback(host) {
			a.LocalAPIServer = address
		}
		a.Unresolved = o.unresolved(address)
	}
	var err error
	for list, texts := range map[*[]destinations.Rule][]string{&a.Allow: o.Allow, &a.Only: o.Only, &a.Deny: append(ownAddresses(self), o.Deny...)} {
		if *list, err = destinations.ParseRules(strings.Join(texts, ",")); err != nil {
			return nil, err
		}
	}
	if o.Rules != "" {
		if a.File, err = rules.Open(o.Rules); err != nil {
			return nil, fmt.Errorf("--rules: %w", err)
		}
	}
	if o.AccessReview {
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return nil, err
		}
		a.Review = rules.NewReview(client.AuthorizationV1().SubjectAccessReviews())
	}
	return a, nil
}

// judges reports whether destinations are judged by more than the kubeconfig's own rights.
func (o *Options) judges() bool {
	return o.AccessReview || o.Rules != "" || len(o.Deny) > 0 || len(o.Only) > 0
}

// unresolved tells which names the path may resolve: the tunnel's API denies what its rules deny after that. It does not know
// the proxy's rules, so with these, and on the other paths, which may deny nothing, that is the API server's name only.
func (o *Options) unresolved(apiServer string) func(host string, port uint16) bool {
	if o.Via == dial.ViaAPI && !o.judges() {
		return func(string, uint16) bool { return true }
	}
	return func(host string, port uint16) bool {
		return gateway.SameAddress(host, port, apiServer)
	}
}

// ownAddresses returns rules against the proxy's own port: a client that connects to the
// proxy through itself would use up its connections.
func ownAddresses(self net.Addr) (deny []string) {
	ap, err := netip.ParseAddrPort(self.String())
	if err != nil {
		return nil
	}
	addrs := []netip.Addr{ap.Addr().Unmap()}
	if ap.Addr().IsUnspecified() {
		addrs = nil
		all, _ := net.InterfaceAddrs()
		for _, a := range all {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				addrs = append(addrs, p.Addr())
			}
		}
	}
	for _, a := range addrs {
		deny = append(deny, netip.AddrPortFrom(a.WithZone(""), ap.Port()).String())
	}
	return deny
}

// listen opens the port. A name that turns out to be no loopback address is refused.
func (o *Options) listen(ctx context.Context) (net.Listener, error) {
	lc := net.ListenConfig{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 10 * time.Second, Count: 3}}
	l, err := lc.Listen(ctx, "tcp", o.Listen)
	if err != nil {
		if errors.Is(err, syscall.EADDRINUSE) {
			return nil, fmt.Errorf("--listen %s: another program has the port: choose another one; port 0 picks a free one", o.Listen)
		}
		return nil, fmt.Errorf("--listen: %w", err)
	}
	exposed := *o
	exposed.Listen = l.Addr().String()
	if err := exposed.validateExposure(); err != nil {
		_ = l.Close()
		return nil, err
	}
	return l, nil
}

// announce writes the files that lead to the proxy and says where they are. The function
// that it returns removes them.
func (o *Options) announce(u *url.URL, addr net.Addr, config *rest.Config) (func(), error) {
	remove, err := o.addContext(u)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(o.Streams.ErrOut, "SOCKS5 and HTTP CONNECT on %s (via %s)\n", addr, o.Via)
	if len(o.Command) > 0 {
		return remove, nil
	}
	o.warnOfLoopback(config)
	if !o.randomPassword() {
		return remove, nil
	}
	file, err := o.urlFile(addr)
	if err != nil {
		remove()
		return nil, err
	}
	if err := writeURL(file, u); err != nil {
		remove()
		return nil, fmt.Errorf("write the proxy's URL: %w: set --url-file", err)
	}
	instructions(o.Streams.ErrOut, file, o.TLSCert != "")
	return func() { _ = os.Remove(file); remove() }, nil
}

// warnOfLoopback tells where a command in Go would not use the proxy.
func (o *Options) warnOfLoopback(config *rest.Config) {
	if config == nil || o.WriteKubeconfig != "" {
		return
	}
	if u, err := url.Parse(config.Host); err == nil && gateway.IsLoopback(u.Hostname()) {
		fmt.Fprintf(o.Streams.ErrOut, "Warning: kubectl and other Go programs ignore HTTPS_PROXY for a server on this machine (%s): use --write-kubeconfig for them\n", u.Redacted())
	}
}

// commandDrain is the time that connections have after the command has ended: what it has
// sent still reaches the destinations. Only connections that processes of the command have
// left open take all of it.
const commandDrain = 2 * time.Second

// serve runs the server, and the command if there is one with env, until either or ctx ends.
func (o *Options) serve(ctx context.Context, s *gatewaysocks5.Server, l net.Listener, env map[string]string) error {
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }() //nolint:contextcheck // connections outlive ctx by the grace period
	var err error
	if len(o.Command) > 0 {
		err = serving.RunCommand(ctx, o.Streams, o.Command, env)
	} else {
		select {
		case <-ctx.Done():
			if o.ShutdownDelay > 0 {
				fmt.Fprintf(o.Streams.ErrOut, "Accepting connections for another %v\n", o.ShutdownDelay)
			}
			select {
			case <-time.After(o.ShutdownDelay):
			case err = <-served:
				served <- err
			}
		case err = <-served:
			served <- err
		}
	}
	if open := s.Open(); open > 0 && len(o.Command) == 0 {
		fmt.Fprintf(o.Streams.ErrOut, "Waiting up to %v for %d open connections\n", o.DrainTimeout, open)
	}
	drainTime := o.DrainTimeout
	if len(o.Command) > 0 {
		drainTime = min(drainTime, commandDrain)
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
	defer cancel()
	if drainErr := s.Shutdown(drain); drainErr != nil && len(o.Command) == 0 {
		fmt.Fprintln(o.Streams.ErrOut, "Closed the connections that were still open")
	}
	if serveErr := <-served; err == nil {
		err = serveErr
	}
	if errors.Is(err, net.ErrClosed) {
		err = nil
	}
	return err
}
