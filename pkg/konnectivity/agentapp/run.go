package agentapp

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/certs"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/kube"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/link"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/shell"
)

// NewCommand returns the command konnectivity-agent.
func NewCommand() *cobra.Command {
	o := NewOptions()
	cmd := &cobra.Command{
		Use:          "konnectivity-agent",
		Long:         "Connects to the servers and connects to destinations on their behalf.",
		Args:         cobra.NoArgs,
		SilenceUsage: true, SilenceErrors: true,
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
	m := agent.NewMetrics()
	cfg, err := o.config(ctx, m)
	if err != nil {
		return err
	}
	a := agent.New(cfg, m)
	if err := o.serveHTTP(ctx, a, m); err != nil {
		return err
	}
	ran := make(chan struct{})
	runCtx, end := context.WithCancel(ctx)
	go func() { a.Run(runCtx); close(ran) }()
	go notifyReady(ctx, a)
	go shell.Settle(ctx, a.Connections)
	<-stop
	shell.Notify("STOPPING=1")
	klog.V(1).InfoS("Draining", "grace", o.GracefulShutdownTimeout)
	grace, done := context.WithTimeout(ctx, o.GracefulShutdownTimeout)
	defer done()
	go func() {
		select {
		case <-kill:
			done()
		case <-grace.Done():
		}
	}()
	a.Drain(grace)
	end()
	<-ran
	return nil
}

// notifyReady tells systemd once the first server is connected.
func notifyReady(ctx context.Context, a *agent.Agent) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for !a.Ready() {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
	shell.Notify("READY=1")
}

func (o *Options) config(ctx context.Context, m *agent.Metrics) (agent.Config, error) {
	loader, err := certs.NewLoader(certs.Files{Cert: o.AgentCert, Key: o.AgentKey, CA: o.CaCert}, func(f string, a ...any) { shell.Logf(1, f, a...) })
	if err != nil {
		return agent.Config{}, err
	}
	policy, err := o.policy()
	if err != nil {
		return agent.Config{}, err
	}
	base := &tls.Config{ServerName: o.ProxyServerHost, NextProtos: o.AlpnProtos, MinVersion: tls.VersionTLS12}
	cfg := agent.Config{
		Address: net.JoinHostPort(o.ProxyServerHost, strconv.Itoa(o.ProxyServerPort)),
		TLS:     func() (*tls.Config, error) { return loader.Client(base), nil },
		AgentID: o.AgentID, Identifiers: o.AgentIdentifiers,
		SyncInterval: o.SyncInterval, SyncIntervalCap: o.SyncIntervalCap, SyncForever: o.SyncForever, KeepaliveTime: o.KeepaliveTime,
		DialTimeout: o.DialTimeout, MaxDials: o.MaxPendingDials, MaxConns: o.MaxConnections, Policy: policy,
		Links: o.Links, ReferenceOnly: o.Link == "reference", PauseSlow: o.SlowReceivers == "pause", ConnLimit: o.ConnBuffer,
		Link: link.Config{Window: o.LinkWindow, MaxWindow: o.LinkMaxWindow, Budget: link.NewBudget(o.LinkBudget)},
		Logf: shell.Logf,
	}
	if path := o.ServiceAccountTokenPath; path != "" {
		cfg.Token = func() (string, error) {
			b, err := os.ReadFile(path)
			return strings.TrimSpace(string(b)), err
		}
	}
	if o.CountServerLeases {
		cfg.ServerCount, err = o.leaseCount(ctx, m)
	}
	return cfg, err
}

// leaseCount counts servers by their Leases.
func (o *Options) leaseCount(ctx context.Context, m *agent.Metrics) (func(int) int, error) {
	labels, err := kube.ParseLabels(o.LeaseLabel)
	if err != nil {
		return nil, err
	}
	kc, err := kube.Load(o.KubeconfigPath)
	if err != nil {
		return nil, err
	}
	c := &kube.Counter{Leases: &kube.Leases{Client: kube.NewClient(kc), Namespace: o.LeaseNamespace, Labels: labels},
		OnList: func(err error, took time.Duration) {
			if code, reason, ok := kube.CodeOf(err); ok {
				m.LeaseLists.With(strconv.Itoa(code), reason).Inc()
				m.LeaseListTime.With(strconv.Itoa(code)).Observe(took.Seconds())
			} else {
				klog.ErrorS(err, "Cannot list leases")
			}
		},
		OnWatch: func(err error) {
			if code, reason, ok := kube.CodeOf(err); ok {
				m.LeaseWatches.With(strconv.Itoa(code), reason).Inc()
			}
		}}
	go c.Run(ctx)
	return func(fromServer int) int {
		if n := c.Count(); o.ServerCountSource != "max" || n > fromServer {
			return n
		}
		return fromServer
	}, nil
}

// serveHTTP opens the health and admin listeners.
func (o *Options) serveHTTP(ctx context.Context, a *agent.Agent, m *agent.Metrics) error {
	ready := func(w http.ResponseWriter, r *http.Request) {
		var b bytes.Buffer
		b.WriteString("[+]ping ok\n")
		if !a.Ready() {
			b.WriteString("[-]server-connected failed: no servers connected\n")
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = w.Write(b.Bytes())
			return
		}
		if _, verbose := r.URL.Query()["verbose"]; !verbose {
			shell.OK(w, r)
			return
		}
		b.WriteString("[+]server-connected ok\ncheck passed\n")
		_, _ = w.Write(b.Bytes())
	}
	health := http.NewServeMux()
	health.HandleFunc("/healthz", shell.OK)
	health.HandleFunc("/readyz", ready)
	health.HandleFunc("/ready", ready)
	health.Handle("/metrics", m.Registry)
	if err := shell.Serve(ctx, "health listener", net.JoinHostPort(o.HealthServerHost, strconv.Itoa(o.HealthServerPort)), health); err != nil {
		return err
	}
	admin := http.NewServeMux()
	admin.HandleFunc("/metrics", o.redirectMetrics)
	if o.EnableProfiling {
		shell.AddProfiling(admin, o.EnableContentionProfiling)
	}
	return shell.Serve(ctx, "admin listener", net.JoinHostPort(o.AdminBindAddress, strconv.Itoa(o.AdminServerPort)), admin)
}

// redirectMetrics sends to the health listener, as the reference agent does.
func (o *Options) redirectMetrics(w http.ResponseWriter, r *http.Request) {
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = r.Host
	}
	dest := *r.URL
	dest.Scheme, dest.Host = "http", net.JoinHostPort(host, strconv.Itoa(o.HealthServerPort))
	http.Redirect(w, r, dest.String(), http.StatusMovedPermanently)
}
