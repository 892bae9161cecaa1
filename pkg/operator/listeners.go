// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"

	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/conversion/webhook"
	"github.com/fairlead-dev/fairlead/pkg/internal/httplimits"
	"github.com/fairlead-dev/fairlead/pkg/internal/logthrottle"
)

// noListener is the address at which nothing listens.
const noListener = "0"

// shutdownBound is how long requests may take when the operator ends. Connections that are
// left end with the process.
const shutdownBound = 10 * time.Second

// tls is the configuration of listeners with the webhook's certificate.
func (c *certificates) tls() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: c.get}
}

// serveWebhook serves until ctx ends. The channel gets the server's error, or nil, then.
func serveWebhook(ctx context.Context, address string, convert http.Handler, certs *certificates) (<-chan error, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--webhook-bind-address: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle(webhook.Path, convert)
	limits := httplimits.Short
	limits.Read = 30 * time.Second // for large objects
	server := limits.Server(mux)
	server.TLSConfig = certs.tls()
	stopped := make(chan error, 1)
	go func() {
		if err := server.ServeTLS(limits.Listener(listener), "", ""); !errors.Is(err, http.ErrServerClosed) {
			stopped <- err
		}
		close(stopped)
	}()
	context.AfterFunc(ctx, func() {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownBound)
		defer cancel()
		_ = server.Shutdown(bounded)
	})
	return stopped, nil
}

// addListeners adds the listeners for health and for metrics. Those of controller-runtime have
// no limit of connections, and take headers of 1 MiB.
func addListeners(m manager.Manager, cfg *rest.Config, o Options, certs *certificates) error {
	metricsHandler, err := guarded(cfg, m.GetHTTPClient(), promhttp.HandlerFor(metrics.Registry, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}))
	if err != nil {
		return err
	}
	scrapes, probes := http.NewServeMux(), http.NewServeMux()
	scrapes.Handle("/metrics", metricsHandler)
	for path, checks := range map[string]map[string]healthz.Checker{"/healthz": {"ping": healthz.Ping}, "/readyz": {"webhook": certs.check}} {
		h := http.StripPrefix(path, &healthz.Handler{Checks: checks})
		probes.Handle(path, h)
		probes.Handle(path+"/", h)
	}
	return errors.Join(
		addListener(m, "health-probe-bind-address", o.HealthAddress, probes, nil),
		addListener(m, "metrics-bind-address", o.MetricsAddress, scrapes, certs.tls()),
	)
}

// addListener has the manager serve at an address, before it leads.
func addListener(m manager.Manager, flag, address string, h http.Handler, encrypted *tls.Config) error {
	if address == noListener {
		return nil
	}
	listener, err := net.Listen("tcp", address) //nolint:noctx // returns at once
	if err != nil {
		return fmt.Errorf("--%s: %w", flag, err)
	}
	limits := httplimits.Short
	listener = limits.Listener(listener)
	if encrypted != nil {
		listener = tls.NewListener(listener, encrypted)
	}
	return m.Add(&manager.Server{Name: flag, Server: limits.Server(h), Listener: listener, ShutdownTimeout: ptr.To(shutdownBound)})
}

// guarded lets requests through whose bearer token is of a user that may get the path.
func guarded(cfg *rest.Config, client *http.Client, next http.Handler) (http.Handler, error) {
	filter, err := filters.WithAuthenticationAndAuthorization(cfg, client)
	if err != nil {
		return nil, err
	}
	return filter(logr.New(throttled{logthrottle.New(klog.Background(), 0)}), next)
}

// throttled logs errors, each once in a while: every client can cause some, and a missing right of
// the operator shows nowhere else.
type throttled struct{ said *logthrottle.Log }

// Init implements logr.LogSink.
func (throttled) Init(logr.RuntimeInfo) {}

// Enabled implements logr.LogSink.
func (throttled) Enabled(int) bool { return false }

// Info implements logr.LogSink.
func (throttled) Info(int, string, ...any) {}

// Error implements logr.LogSink.
func (t throttled) Error(err error, msg string, _ ...any) {
	t.said.Add(logthrottle.Event{Peer: "metrics", Message: "Cannot check a request for metrics", Why: []any{"reason", msg}, Err: err})
}

// WithValues implements logr.LogSink.
func (t throttled) WithValues(...any) logr.LogSink { return t }

// WithName implements logr.LogSink.
func (t throttled) WithName(string) logr.LogSink { return t }
