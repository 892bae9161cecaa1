package serverapp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/fairlead-dev/fairlead/pkg/daemon"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/certs"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/kube"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/shell"
)

// NewCommand returns the command konnectivity-server.
func NewCommand() *cobra.Command {
	o := NewOptions()
	return shell.Program{
		Name: "konnectivity-server", About: "Accepts connections of kube-apiserver and forwards them through agents.", Flags: o.AddFlags,
		Run: func(ctx context.Context, signals *daemon.Signals) error { return Run(ctx, o, signals) },
	}.Command()
}

// Run serves until the first signal and then until connections have ended, the
// grace is over or the second signal comes.
func Run(ctx context.Context, o *Options, signals *daemon.Signals) error {
	if err := o.Validate(); err != nil {
		return fmt.Errorf("flags: %w", err)
	}
	return shell.Bounded(signals, o.GracefulShutdownTimeout, func() error { return o.run(ctx, signals) })
}

func (o *Options) run(ctx context.Context, signals *daemon.Signals) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	shell.LimitProcessors(o.LinksPerAgent)
	shell.BusyPoll(o.Link.BusyPoll)
	m := server.NewMetrics()
	client, err := o.kubeClient()
	if err != nil {
		return err
	}
	s := server.New(o.config(client), m)
	if err := o.listen(ctx, s); err != nil {
		return err
	}
	if err := o.serveHTTP(ctx, s, m); err != nil {
		return err
	}
	leave := func() {}
	if o.EnableLeaseController {
		leases, err := o.kubeClient() // of its own: reviews of tokens must not keep the Lease waiting
		if err != nil {
			return err
		}
		k := keepLease(ctx, o, leases, m)
		leave = func() { k.release(ctx) }
	}
	go shell.Settle(ctx, s.Established)
	shell.Notify("READY=1")
	<-signals.First
	shell.Notify("STOPPING=1")
	klog.V(1).InfoS("Stopping", "grace", o.GracefulShutdownTimeout, "connections", s.Established())
	var left sync.WaitGroup
	left.Go(leave)
	grace, done := shell.Grace(ctx, o.GracefulShutdownTimeout, signals)
	defer done()
	s.Shutdown(grace)
	left.Wait()
	return nil
}

func (o *Options) kubeClient() (*kube.Client, error) {
	if !o.usesTokens() && !o.EnableLeaseController {
		return nil, nil
	}
	cfg, err := kube.Load(o.KubeconfigPath)
	if err != nil {
		return nil, err
	}
	cfg.QPS, cfg.Burst = o.KubeconfigQPS, o.KubeconfigBurst
	return kube.NewClient(cfg), nil
}

func (o *Options) config(client *kube.Client) server.Config {
	strategies, _ := server.ParseStrategies(o.ProxyStrategies)
	cfg := server.Config{
		ServerID: o.ServerID, ServerCount: o.ServerCount, Strategies: strategies,
		DialTimeout: o.BackendDialTimeout, AgentWait: o.AgentWait,
		AgentKeepalive: o.KeepaliveTime, FrontendKeepalive: o.FrontendKeepaliveTime,
		MaxPending: o.MaxPendingDials, MaxConns: o.MaxConnections, MaxPerAgent: o.MaxPerAgent, MaxAgents: o.MaxAgents,
		Links: o.LinksPerAgent, ReferenceOnly: o.Link.Reference(),
		PauseSlow: o.Link.Pause(), ConnLimit: o.Link.ConnBuffer, PeerBuffer: o.Link.PeerBuffer, TotalBuffer: o.Link.TotalBuffer, Link: o.Link.Config(),
		Claims: server.Claims{By: o.AgentClaims, DefaultRoute: o.DefaultRoute},
		Logf:   shell.Logf,
	}
	if o.usesTokens() {
		nodes := &kube.Nodes{Client: client, Keep: o.TokenCache}
		cfg.Claims.NodeAddresses = nodes.Addresses
		cfg.Tokens = &kube.TokenAuth{Client: client, Namespace: o.AgentNamespace, ServiceAccount: o.AgentServiceAccount,
			Audience: o.AuthenticationAudience, Keep: o.TokenCache}
	}
	return cfg
}

// tls returns a configuration that follows its files. Protocols have to be in it from the
// start: connections get one of their own, made of what the files say and of this.
func (o *Options) tls(cert, key, ca string, protocols ...string) (*tls.Config, error) {
	l, err := certs.NewLoader(certs.Files{Cert: cert, Key: key, CA: ca}, func(f string, a ...any) { shell.Logf(1, f, a...) })
	if err != nil {
		return nil, err
	}
	version, _ := tlsVersion(o.TLSMinVersion)
	suites, _ := cipherSuites(o.CipherSuites)
	return l.Server(&tls.Config{
		MinVersion: version, CipherSuites: suites, NextProtos: protocols, //nolint:gosec // as the flag says
		DynamicRecordSizingDisabled: true, // small records at first cost bulk data more than they gain
	}), nil
}

// checkCertificates refuses to run where every handshake would fail. The reference server's
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
func (o *Options) listen(ctx context.Context, s *server.Server) error {
	if err := o.checkCertificates(); err != nil {
		return err
	}
	agentTLS, err := o.tls(o.ClusterCert, o.ClusterKey, o.ClusterCaCert)
	if err != nil {
		return err
	}
	l, err := o.openListeners(ctx)
	if err != nil {
		return err
	}
	//nolint:contextcheck // Shutdown ends connections, after their grace; ctx may not
	serve("agents", func() error { return s.ServeAgents(l.agents, agentTLS) })
	if o.Mode == "grpc" {
		//nolint:contextcheck // as above
		serve("clients", func() error { return s.ServeGRPC(l.front, l.frontTLS) })
	} else {
		//nolint:contextcheck // as above
		serve("clients", func() error { return s.ServeHTTPConnect(l.front, l.frontTLS) })
	}
	return nil
}

// serve runs f beside the caller. That its listener is closed is how it ends.
func serve(whom string, f func() error) {
	go func() {
		if err := f(); !errors.Is(err, net.ErrClosed) {
			klog.ErrorS(err, "Cannot serve", "whom", whom)
		}
	}()
}

// serveHTTP opens the health and admin listeners.
func (o *Options) serveHTTP(ctx context.Context, s *server.Server, m *server.Metrics) error {
	ready := func(w http.ResponseWriter, r *http.Request) {
		if ok, msg := s.Ready(); !ok {
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = w.Write([]byte(msg))
			return
		}
		shell.OK(w, r)
	}
	if err := shell.Serve(ctx, "health listener", o.HealthBindAddress, o.HealthPort, shell.Health(ready, m.Registry)); err != nil {
		return err
	}
	admin := shell.Admin(m.Registry, o.EnableProfiling, o.EnableContentionProfiling)
	return shell.Serve(ctx, "admin listener", o.AdminBindAddress, o.AdminPort, admin)
}
