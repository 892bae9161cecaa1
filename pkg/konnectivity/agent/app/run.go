// SPDX-License-Identifier: Apache-2.0

package app

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

	"github.com/fairlead-dev/fairlead/pkg/daemon"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/apiclient"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/cmdutil"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tlsreload"
)

// NewCommand returns the command konnectivity-agent.
func NewCommand() *cobra.Command {
	o := NewOptions()
	return cmdutil.Program{
		Name: "konnectivity-agent", About: "Connects to the servers and connects to destinations on their behalf.", Flags: o.AddFlags,
		Example: `  # in a Pod, with a projected token
  konnectivity-agent --proxy-server-host=10.0.0.1 --proxy-server-port=8132 \
    --ca-cert=/var/run/secrets/kubernetes.io/serviceaccount/ca.crt \
    --service-account-token-path=/var/run/secrets/tokens/konnectivity-agent-token`,
		Run: func(ctx context.Context, signals *daemon.Signals) error { return Run(ctx, o, signals) },
	}.Command()
}

// Run serves until the first signal and then until connections have ended, the
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
	logger := klog.FromContext(ctx)
	cmdutil.LimitProcessors(o.Agent.Links)
	m := agent.NewMetrics()
	cfg, err := o.config(ctx, m)
	if err != nil {
		return err
	}
	tracer, stopTracing, err := cmdutil.Tracing(logger, o.TracingConfigFile, "konnectivity-agent") //nolint:contextcheck // it exports until all else has ended
	if err != nil {
		return err
	}
	defer stopTracing()
	cfg.Tracer = tracer
	a := agent.New(cfg, m)
	if err := o.serveHTTP(ctx, a, m); err != nil {
		return err
	}
	ran := make(chan struct{})
	runCtx, end := context.WithCancel(ctx)
	defer end()
	go func() { a.Run(runCtx); close(ran) }()
	go notifyReady(ctx, a)
	go cmdutil.Settle(ctx, a.Connections)
	<-signals.First
	cmdutil.Notify(ctx, "STOPPING=1")
	logger.V(1).Info("Draining", "grace", o.GracefulShutdownTimeout, "connections", a.Connections())
	grace, done := cmdutil.Grace(ctx, o.GracefulShutdownTimeout, signals)
	defer done()
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
	cmdutil.Notify(ctx, "READY=1")
}

func (o *Options) config(ctx context.Context, m *agent.Metrics) (agent.Config, error) {
	logger := klog.FromContext(ctx)
	loader, err := tlsreload.NewLoader(tlsreload.Files{Cert: o.AgentCert, Key: o.AgentKey, CA: o.CaCert}, logger)
	if err != nil {
		return agent.Config{}, err
	}
	m.ReportCertificate(loader.NotAfter)
	policy, err := o.policy()
	if err != nil {
		return agent.Config{}, err
	}
	o.warnOfIdentifiers(logger)
	address := cmdutil.Address(o.ProxyServerHost, o.ProxyServerPort)
	proxy, err := proxyTo(logger, address)
	if err != nil {
		return agent.Config{}, err
	}
	base := &tls.Config{ServerName: cmdutil.Host(o.ProxyServerHost), NextProtos: o.AlpnProtos, MinVersion: tls.VersionTLS12}
	cfg := o.Agent
	cfg.Address, cfg.Proxy, cfg.Policy, cfg.Logger = address, proxy, policy, logger
	cfg.TLS = func() (*tls.Config, error) { return loader.Client(base), nil }
	cfg.Protocol, cfg.PauseSlow, cfg.ConnBuffer, cfg.Link = o.Link.PeerProtocol(), o.Link.Pause(), o.Link.ConnBuffer, o.Link.Config()
	cfg.PeerBuffer, cfg.TotalBuffer = o.Link.PeerBuffer, o.Link.TotalBuffer
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
	labels, err := apiclient.ParseLabels(o.LeaseLabel)
	if err != nil {
		return nil, err
	}
	kc, err := apiclient.Load(ctx, o.KubeconfigPath)
	if err != nil {
		return nil, err
	}
	c := &apiclient.Counter{Leases: &apiclient.Leases{Client: apiclient.NewClient(kc), Namespace: o.LeaseNamespace, Labels: labels},
		OnOddClock: apiclient.LogOddClock(klog.FromContext(ctx)),
		OnList: func(err error, took time.Duration) {
			if code, reason, ok := apiclient.CodeOf(err); ok {
				m.LeaseLists.With(strconv.Itoa(code), reason).Inc()
				m.LeaseListTime.With(strconv.Itoa(code)).Observe(took.Seconds())
			} else {
				klog.FromContext(ctx).Error(err, "Cannot list leases")
			}
		},
		OnWatch: func(err error) {
			if code, reason, ok := apiclient.CodeOf(err); ok {
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

// health is the handler of the health listener.
func health(a *agent.Agent, m *agent.Metrics) http.Handler {
	return cmdutil.Health(func(w http.ResponseWriter, r *http.Request) {
		var b bytes.Buffer
		b.WriteString("[+]ping ok\n")
		if !a.Ready() {
			b.WriteString("[-]server-connected failed: no servers connected\n")
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = w.Write(b.Bytes())
			return
		}
		if _, verbose := r.URL.Query()["verbose"]; !verbose {
			cmdutil.OK(w, r)
			return
		}
		b.WriteString("[+]server-connected ok\ncheck passed\n")
		_, _ = w.Write(b.Bytes())
	}, m.Registry)
}

// serveHTTP opens the health and admin listeners.
func (o *Options) serveHTTP(ctx context.Context, a *agent.Agent, m *agent.Metrics) error {
	if err := cmdutil.Serve(ctx, "health listener", o.HealthServerHost, o.HealthServerPort, health(a, m)); err != nil {
		return err
	}
	admin := cmdutil.Admin(http.HandlerFunc(o.redirectMetrics), o.EnableProfiling, o.EnableContentionProfiling)
	return cmdutil.Serve(ctx, "admin listener", o.AdminBindAddress, o.AdminServerPort, admin)
}

// redirectMetrics sends to the health listener, as upstream's agent does.
func (o *Options) redirectMetrics(w http.ResponseWriter, r *http.Request) {
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = r.Host
	}
	dest := *r.URL
	dest.Scheme, dest.Host = "http", cmdutil.Address(host, o.HealthServerPort)
	http.Redirect(w, r, dest.String(), http.StatusMovedPermanently)
}
