// SPDX-License-Identifier: Apache-2.0

package app

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/fairlead-dev/fairlead/pkg/daemon"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/apiclient"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/cmdutil"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tlsreload"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
)

// NewCommand returns the command konnectivity-server.
func NewCommand() *cobra.Command {
	o := NewOptions()
	return cmdutil.Program{
		Name: "konnectivity-server", About: "Accepts connections of kube-apiserver and forwards them through agents.", Flags: o.AddFlags,
		Example: `  # on a control plane node, for agents that authenticate with tokens of their ServiceAccount
  konnectivity-server --mode=grpc --uds-name=/run/konnectivity/server.socket --server-port=0 --agent-port=8132 \
    --cluster-cert=/etc/kubernetes/pki/apiserver.crt --cluster-key=/etc/kubernetes/pki/apiserver.key \
    --kubeconfig=/etc/kubernetes/konnectivity-server.conf --agent-namespace=kube-system \
    --agent-service-account=konnectivity-agent --authentication-audience=system:konnectivity-server`,
		Run: func(ctx context.Context, signals *daemon.Signals) error { return Run(ctx, o, signals) },
	}.Command()
}

// Run serves until the first SIGTERM or SIGINT and then until connections have ended, the
// grace is over or the second signal comes.
func Run(ctx context.Context, o *Options, signals *daemon.Signals) error {
	if err := o.Validate(); err != nil {
		return fmt.Errorf("flags: %w", err)
	}
	return cmdutil.Bounded(ctx, signals, o.GracefulShutdownTimeout, func() error { return o.run(ctx, signals) })
}

func (o *Options) run(ctx context.Context, signals *daemon.Signals) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmdutil.LimitProcessors(o.LinksPerAgent)
	m := server.NewMetrics()
	client, err := o.kubeClient(ctx, reviewQPS, reviewBurst)
	if err != nil {
		return err
	}
	cfg := o.config(client, klog.FromContext(ctx))
	tracer, stopTracing, err := cmdutil.Tracing(cfg.Logger, o.TracingConfigFile, "konnectivity-server") //nolint:contextcheck // it exports until all else has ended
	if err != nil {
		return err
	}
	defer stopTracing()
	cfg.Tracer = tracer
	s := server.New(cfg, m)                           //nolint:contextcheck // its reviews and connections end with Shutdown
	if err := o.addLocal(s, cfg.Logger); err != nil { //nolint:contextcheck // the link ends with Shutdown
		return err
	}
	if err := o.listen(ctx, s, m); err != nil {
		return err
	}
	if err := o.serveHTTP(ctx, s, m); err != nil {
		return err
	}
	src := &stateSource{o: o, s: s}
	leave := func() {}
	if o.EnableLeaseController {
		leases, err := o.kubeClient(ctx, 0, 0) // a separate client: reviews of tokens must not keep the Lease waiting
		if err != nil {
			return err
		}
		k := keepLease(ctx, o, leases, m)
		leave = func() { k.release(ctx) }
		src.leases = k
	}
	if err := o.serveState(ctx, m, src, client); err != nil {
		leave()
		return err
	}
	go cmdutil.Settle(ctx, s.Established)
	cmdutil.Notify(ctx, "READY=1")
	<-signals.First
	cmdutil.Notify(ctx, "STOPPING=1")
	cfg.Logger.V(1).Info("Stopping", "grace", o.GracefulShutdownTimeout, "connections", s.Established())
	var left sync.WaitGroup
	left.Go(leave)
	grace, done := cmdutil.Grace(ctx, o.GracefulShutdownTimeout, signals)
	defer done()
	s.Shutdown(grace)
	left.Wait()
	return nil
}

// The rate of token reviews where --kubeconfig-qps and --kubeconfig-burst are 0. At the
// client's own default, 5 a second, some hundred hosts with wrong tokens would keep all
// agents out.
const reviewQPS, reviewBurst = 50, 100

// kubeClient returns a client with the flags' rate, or with a default where flags are 0.
func (o *Options) kubeClient(ctx context.Context, qps float32, burst int) (*apiclient.Client, error) {
	if !o.usesTokens() && !o.EnableLeaseController && o.StatePort == 0 {
		return nil, nil
	}
	cfg, err := apiclient.Load(ctx, o.KubeconfigPath)
	if err != nil {
		return nil, err
	}
	cfg.QPS, cfg.Burst = cmp.Or(o.KubeconfigQPS, qps), cmp.Or(o.KubeconfigBurst, burst)
	return apiclient.NewClient(cfg), nil
}

func (o *Options) config(client *apiclient.Client, logger klog.Logger) server.Config {
	strategies, _ := server.ParseStrategies(o.ProxyStrategies)
	nonNode, _ := prefixes(o.NonNodeCIDRs)
	cfg := server.Config{
		ServerID: o.ServerID, ServerCount: o.ServerCount, Strategies: strategies,
		DialTimeout: o.BackendDialTimeout, AgentWait: o.AgentWait,
		AgentKeepalive: o.KeepaliveTime, FrontendKeepalive: o.FrontendKeepaliveTime,
		MaxPending: o.MaxPendingDials, MaxConns: o.MaxConnections, MaxPerAgent: o.MaxPerAgent, MaxAgents: o.MaxAgents, MaxPerOwner: o.MaxPerOwner,
		Links: o.LinksPerAgent, Protocol: o.Link.PeerProtocol(),
		PauseSlow: o.Link.Pause(), ConnBuffer: o.Link.ConnBuffer, PeerBuffer: o.Link.PeerBuffer, TotalBuffer: o.Link.TotalBuffer, Link: o.Link.Config(),
		Claims:         server.Claims{By: o.AgentClaims, DefaultRoute: o.DefaultRoute, NonNodeCIDRs: nonNode},
		ReviewInterval: o.TokenReviewInterval,
		Logger:         logger,
	}
	if o.ClusterCaCert != "" {
		// The loader is there before the first agent is.
		cfg.VerifyAgent = func(chain []*x509.Certificate) error { return o.agentCertificate.VerifyClient(chain) }
	}
	if o.usesTokens() {
		nodes := &apiclient.Nodes{Client: client, Keep: o.TokenCache}
		cfg.Claims.NodeAddresses, cfg.Claims.NodesWith, cfg.Claims.PodRange = nodes.Addresses, nodes.With, nodes.PodRange
		cfg.Tokens = &apiclient.TokenAuth{Client: client, Namespace: o.AgentNamespace, ServiceAccount: o.AgentServiceAccount,
			Audience: o.AuthenticationAudience, Keep: o.TokenCache}
	}
	return cfg
}

// tls returns a configuration that follows its files. Protocols have to be in it from the
// start: each connection gets a copy, with what the files say.
func (o *Options) tls(m *server.Metrics, peer string, files tlsreload.Files, protocols ...string) (*tls.Config, error) {
	cfg, _, err := o.loadTLS(m, peer, files, protocols...)
	return cfg, err
}

func (o *Options) loadTLS(m *server.Metrics, peer string, files tlsreload.Files, protocols ...string) (*tls.Config, *tlsreload.Loader, error) {
	l, err := tlsreload.NewLoader(files, klog.Background())
	if err != nil {
		return nil, nil, err
	}
	m.ReportCertificate(peer, l.NotAfter)
	version, _ := tlsVersion(o.TLSMinVersion)
	suites, _ := cipherSuites(o.CipherSuites)
	return l.Server(&tls.Config{
		MinVersion: version, CipherSuites: suites, NextProtos: protocols, //nolint:gosec // as the flag says
		DynamicRecordSizingDisabled: true, // small records at first cost bulk data more than they gain
	}), l, nil
}

// checkCertificates refuses to run where every handshake would fail. Upstream's server's
// flags are checked without it, and its start fails.
func (o *Options) checkCertificates() error {
	switch {
	case o.ClusterCert == "" || o.ClusterKey == "":
		return errors.New("--cluster-cert and --cluster-key must be set: agents connect with TLS")
	case o.UdsName == "" && (o.ServerCert == "" || o.ServerKey == ""):
		return errors.New("--server-cert and --server-key must be set without --uds-name: clients connect with TLS then")
	case o.AgentClaims == "certificate" && o.ClusterCaCert == "":
		return errors.New("--agent-claims=certificate needs --cluster-ca-cert: without it agents send no certificates")
	}
	return nil
}

// listen opens the listeners for clients and agents.
func (o *Options) listen(ctx context.Context, s *server.Server, m *server.Metrics) error {
	if err := o.checkCertificates(); err != nil {
		return err
	}
	logger := klog.FromContext(ctx)
	if o.unauthenticated() {
		logger.Error(nil, "Agents are not authenticated: each host that reaches the agents' port can take over connections of kube-apiserver",
			"address", o.AgentBindAddress,
			"remedy", "set --cluster-ca-cert, or --agent-namespace, --agent-service-account and --authentication-audience, or bind to loopback with --agent-bind-address")
	}
	agentTLS, certificate, err := o.loadTLS(m, "agents", tlsreload.Files{Cert: o.ClusterCert, Key: o.ClusterKey, CA: o.ClusterCaCert})
	if err != nil {
		return err
	}
	o.agentCertificate = certificate
	l, err := o.openListeners(ctx, m)
	if err != nil {
		return err
	}
	//nolint:contextcheck // Shutdown ends connections, after their grace; ctx may not
	serve(logger, "agents", func() error { return s.ServeAgents(l.agents, agentTLS) })
	if o.Mode == "grpc" {
		//nolint:contextcheck // as above
		serve(logger, "clients", func() error { return s.ServeGRPC(l.front, l.frontTLS) })
	} else {
		//nolint:contextcheck // as above
		serve(logger, "clients", func() error { return s.ServeHTTPConnect(l.front, l.frontTLS) })
	}
	return nil
}

// serve runs f in the background until its listener is closed. The log names it by listener.
func serve(logger klog.Logger, listener string, f func() error) {
	go func() {
		if err := f(); !errors.Is(err, net.ErrClosed) {
			logger.Error(err, "Serving failed", "listener", listener)
		}
	}()
}

// health is the handler of the health listener.
func health(s *server.Server, m *server.Metrics) http.Handler {
	return cmdutil.Health(func(w http.ResponseWriter, r *http.Request) {
		if ok, msg := s.Ready(); !ok {
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = w.Write([]byte(msg))
			return
		}
		cmdutil.OK(w, r)
	}, m.Registry)
}

// serveHTTP opens the health and admin listeners.
func (o *Options) serveHTTP(ctx context.Context, s *server.Server, m *server.Metrics) error {
	if err := cmdutil.Serve(ctx, "health listener", o.HealthBindAddress, o.HealthPort, health(s, m)); err != nil {
		return err
	}
	admin := cmdutil.Admin(m.Registry, o.EnableProfiling, o.EnableContentionProfiling)
	return cmdutil.Serve(ctx, "admin listener", o.AdminBindAddress, o.AdminPort, admin)
}
