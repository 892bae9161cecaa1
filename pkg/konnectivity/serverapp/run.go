package serverapp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/certs"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/kube"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/link"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/shell"
)

// NewCommand returns the command konnectivity-server.
func NewCommand() *cobra.Command {
	o := NewOptions()
	cmd := &cobra.Command{
		Use:           "konnectivity-server",
		Long:          "Accepts connections of kube-apiserver and forwards them through agents.",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			shell.TuneMemory()
			stop, kill := shell.Signals()
			defer klog.Flush()
			return Run(cmd.Context(), o, stop, kill)
		},
	}
	o.AddFlags(cmd.Flags())
	shell.AddKlogFlags(cmd.Flags())
	cmd.Flags().SetNormalizeFunc(shell.Normalize)
	return cmd
}

// Run serves until stop is closed and connections have ended, the grace is over
// or kill is closed.
func Run(ctx context.Context, o *Options, stop, kill <-chan struct{}) error {
	if err := o.Validate(); err != nil {
		return fmt.Errorf("flags: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
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
	var leases *leaseKeeper
	if o.EnableLeaseController {
		leases = newLeaseKeeper(o, client, m)
		go leases.run(ctx)
	}
	go shell.Settle(ctx, s.Established)
	shell.Notify("READY=1")
	<-stop
	shell.Notify("STOPPING=1")
	klog.V(1).InfoS("Stopping", "grace", o.GracefulShutdownTimeout, "connections", s.Established())
	grace, done := context.WithTimeout(ctx, o.GracefulShutdownTimeout)
	defer done()
	go func() {
		select {
		case <-kill:
			done()
		case <-grace.Done():
		}
	}()
	if leases != nil {
		leases.release(ctx)
	}
	s.Shutdown(grace)
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
		FrontendKeepalive: o.FrontendKeepaliveTime, AgentKeepalive: o.KeepaliveTime,
		MaxPending: o.MaxPendingDials, MaxConns: o.MaxConnections, MaxAgents: o.MaxAgents,
		Links: o.LinksPerAgent, ReferenceOnly: o.Link == "reference",
		PauseSlow: o.SlowReceivers == "pause", ConnLimit: o.ConnBuffer,
		Link:   link.Config{Window: o.LinkWindow, MaxWindow: o.LinkMaxWindow, Budget: link.NewBudget(o.LinkBudget)},
		Claims: server.Claims{By: o.AgentClaims, DefaultRoute: o.DefaultRoute},
		Logf:   shell.Logf,
	}
	if o.usesTokens() {
		cfg.Tokens = &kube.TokenAuth{Client: client, Namespace: o.AgentNamespace, ServiceAccount: o.AgentServiceAccount,
			Audience: o.AuthenticationAudience, Keep: o.TokenCache}
	}
	return cfg
}

// tls returns a configuration that follows its files.
func (o *Options) tls(cert, key, ca string) (*tls.Config, error) {
	l, err := certs.NewLoader(certs.Files{Cert: cert, Key: key, CA: ca}, func(f string, a ...any) { shell.Logf(1, f, a...) })
	if err != nil {
		return nil, err
	}
	version, _ := tlsVersion(o.TLSMinVersion)
	suites, _ := cipherSuites(o.CipherSuites)
	return l.Server(&tls.Config{MinVersion: version, CipherSuites: suites}), nil //nolint:gosec // as the flag says
}

// listen opens the listeners for clients and agents.
func (o *Options) listen(ctx context.Context, s *server.Server) error {
	agentTLS, err := o.tls(o.ClusterCert, o.ClusterKey, o.ClusterCaCert)
	if err != nil {
		return err
	}
	var lc net.ListenConfig
	agents, err := lc.Listen(ctx, "tcp", net.JoinHostPort(o.AgentBindAddress, strconv.Itoa(o.AgentPort)))
	if err != nil {
		return fmt.Errorf("agents' listener: %w", err)
	}
	front, frontTLS, err := o.listenFront(ctx)
	if err != nil {
		_ = agents.Close()
		return err
	}
	//nolint:contextcheck // Shutdown ends connections, after their grace; ctx may not
	serve("agents", func() error { return s.ServeAgents(agents, agentTLS) })
	if o.Mode == "grpc" {
		if frontTLS != nil {
			frontTLS.NextProtos = []string{"h2"}
		}
		//nolint:contextcheck // as above
		serve("clients", func() error { return s.ServeGRPC(front, frontTLS) })
	} else {
		//nolint:contextcheck // as above
		serve("clients", func() error { return s.ServeHTTPConnect(front, frontTLS) })
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

func (o *Options) listenFront(ctx context.Context) (net.Listener, *tls.Config, error) {
	if o.UdsName != "" {
		l, err := server.ListenUnix(o.UdsName, o.DeleteUDSFile)
		return l, nil, err
	}
	cfg, err := o.tls(o.ServerCert, o.ServerKey, o.ServerCaCert)
	if err != nil {
		return nil, nil, err
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", net.JoinHostPort(o.ServerBindAddress, strconv.Itoa(o.ServerPort)))
	if err != nil {
		return nil, nil, fmt.Errorf("clients' listener: %w", err)
	}
	return l, cfg, nil
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
	health := http.NewServeMux()
	health.HandleFunc("/healthz", shell.OK)
	health.HandleFunc("/readyz", ready)
	health.HandleFunc("/ready", ready)
	health.Handle("/metrics", m.Registry)
	if err := shell.Serve(ctx, "health listener", net.JoinHostPort(o.HealthBindAddress, strconv.Itoa(o.HealthPort)), health); err != nil {
		return err
	}
	admin := http.NewServeMux()
	admin.Handle("/metrics", m.Registry)
	if o.EnableProfiling {
		shell.AddProfiling(admin, o.EnableContentionProfiling)
	}
	return shell.Serve(ctx, "admin listener", net.JoinHostPort(o.AdminBindAddress, strconv.Itoa(o.AdminPort)), admin)
}

// Times of the Lease, as the reference server has them.
const (
	leaseDuration = 30 * time.Second
	leaseRenew    = 15 * time.Second
)

// leaseKeeper publishes the server's Lease and removes expired ones.
type leaseKeeper struct {
	leases *kube.Leases
	name   string
	id     string
	m      *server.Metrics
	done   chan struct{}
	cancel context.CancelFunc
}

func newLeaseKeeper(o *Options, c *kube.Client, m *server.Metrics) *leaseKeeper {
	labels, _ := kube.ParseLabels(o.LeaseLabel)
	return &leaseKeeper{leases: &kube.Leases{Client: c, Namespace: o.LeaseNamespace, Labels: labels},
		name: "konnectivity-proxy-server-" + o.ServerID, id: o.ServerID, m: m, done: make(chan struct{})}
}

func (k *leaseKeeper) run(ctx context.Context) {
	defer close(k.done)
	ctx, k.cancel = context.WithCancel(ctx)
	tick := time.NewTicker(leaseRenew)
	defer tick.Stop()
	for {
		if err := k.leases.Hold(ctx, k.name, k.id, leaseDuration); err != nil && ctx.Err() == nil {
			klog.ErrorS(err, "Cannot renew lease", "name", k.name)
		}
		k.sweep(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// sweep deletes Leases whose holders are gone.
func (k *leaseKeeper) sweep(ctx context.Context) {
	start := time.Now()
	items, _, err := k.leases.List(ctx)
	if code, reason, ok := kube.CodeOf(err); ok {
		k.m.LeaseLists.With(strconv.Itoa(code), reason).Inc()
		k.m.LeaseListTime.With(strconv.Itoa(code)).Observe(time.Since(start).Seconds())
	}
	for _, l := range items {
		if l.Valid(time.Now()) {
			continue
		}
		start := time.Now()
		err := k.leases.Delete(ctx, l.Metadata.Name, l.Metadata.ResourceVersion)
		if err == nil {
			k.m.CulledLeases.Inc()
		}
		if code, reason, ok := kube.CodeOf(err); ok {
			k.m.LeaseDeletes.With(strconv.Itoa(code), reason).Inc()
			k.m.LeaseDelTime.With(strconv.Itoa(code)).Observe(time.Since(start).Seconds())
		}
	}
}

// release removes the Lease, so that agents stop looking for this server.
func (k *leaseKeeper) release(ctx context.Context) {
	if k.cancel != nil {
		k.cancel()
	}
	<-k.done
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := k.leases.Delete(ctx, k.name, ""); err != nil {
		klog.ErrorS(err, "Cannot remove lease", "name", k.name)
	}
}
