// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/conversion/webhook"
	"github.com/fairlead-dev/fairlead/pkg/internal/httplimits"
	"github.com/fairlead-dev/fairlead/pkg/internal/logthrottle"
)

// noListener is the address at which nothing listens.
const noListener = "0"

// shutdownBound is how long requests may take when the operator is shutting down. Connections that are
// left end with the process.
const shutdownBound = 10 * time.Second

// webhookLimits are those of the webhook's listener. Over HTTP/2, a connection keeps what its
// handlers have not read yet. If all streams are taken, kube-apiserver opens a connection for each
// request that waits, and it does not repeat a conversion whose connection is closed.
func webhookLimits() (httplimits.Limits, *http.HTTP2Config) {
	limits := httplimits.Short
	limits.Read, limits.Conns = 30*time.Second, 300 // for large objects
	return limits, &http.HTTP2Config{MaxConcurrentStreams: 16, MaxReceiveBufferPerConnection: 128 << 10, MaxReceiveBufferPerStream: 128 << 10}
}

// tls is the configuration of listeners with the webhook's certificate.
func (c *certificates) tls() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: c.get}
}

// serveWebhook serves until ctx ends. The channel gets the server's error, or nil, when the requests that
// have begun are answered, or have had shutdownBound for it.
func serveWebhook(ctx context.Context, address string, convert http.Handler, certs *certificates) (<-chan error, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--webhook-bind-address: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle(webhook.Path, convert)
	limits, http2 := webhookLimits()
	server := limits.Server(mux)
	server.TLSConfig, server.HTTP2 = certs.tls(), http2
	stopped := make(chan error, 1)
	served := make(chan error, 1)
	go func() { served <- server.ServeTLS(limits.Listener(listener), "", "") }()
	go func() {
		defer close(stopped)
		select {
		case err := <-served:
			stopped <- err
		case <-ctx.Done():
			bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownBound)
			defer cancel()
			_ = server.Shutdown(bounded)
		}
	}()
	return stopped, nil
}

// serveProbes answers probes until ctx ends, as serveWebhook does. It begins before the manager, which
// waits for the API server: the kubelet must not restart a replica for that.
func serveProbes(ctx context.Context, address string, certs *certificates) (<-chan error, error) {
	stopped := make(chan error, 1)
	probes := http.NewServeMux()
	for path, checks := range map[string]map[string]healthz.Checker{"/healthz": {"ping": healthz.Ping}, "/readyz": {"webhook": certs.check}} {
		h := http.StripPrefix(path, &healthz.Handler{Checks: checks})
		probes.Handle(path, h)
		probes.Handle(path+"/", h)
	}
	server, err := listen("health-probe-bind-address", address, probes, nil)
	if err != nil {
		return nil, err
	}
	go func() {
		if server == nil {
			<-ctx.Done()
		} else if err := server.Start(ctx); err != nil {
			stopped <- err
		}
		close(stopped)
	}()
	return stopped, nil
}

// addMetrics adds the listener for metrics. Those of controller-runtime have no limit of connections,
// and take headers of 1 MiB.
func addMetrics(m manager.Manager, cfg *rest.Config, o Options, certs *certificates) error {
	client, err := kubernetes.NewForConfigAndClient(cfg, m.GetHTTPClient())
	if err != nil {
		return err
	}
	all := promhttp.HandlerFor(prometheus.Gatherers{metrics.Registry, o.registry}, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError})
	scrapes := http.NewServeMux()
	scrapes.Handle("/metrics", newScrapers(client, logthrottle.New(klog.Background(), 0)).guard(all))
	server, err := listen("metrics-bind-address", o.MetricsAddress, scrapes, certs.tls())
	if err != nil || server == nil {
		return err
	}
	return m.Add(server)
}

// listen makes the server of an address, which serves before the manager leads; nil at noListener.
func listen(flag, address string, h http.Handler, encrypted *tls.Config) (*manager.Server, error) {
	if address == noListener {
		return nil, nil
	}
	listener, err := net.Listen("tcp", address) //nolint:noctx // returns at once
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", flag, err)
	}
	limits := httplimits.Short
	listener = limits.Listener(listener)
	if encrypted != nil {
		listener = tls.NewListener(listener, encrypted)
	}
	return &manager.Server{Name: flag, Server: limits.Server(h), Listener: listener, ShutdownTimeout: ptr.To(shutdownBound)}, nil
}
