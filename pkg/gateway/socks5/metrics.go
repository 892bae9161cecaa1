// SPDX-License-Identifier: Apache-2.0

package socks5

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
)

// Metrics are the metrics of a server.
type Metrics struct {
	open                      prometheus.Gauge
	rejected                  prometheus.Counter
	connections, authFailures *prometheus.CounterVec
	bytes                     *prometheus.CounterVec
	dialSeconds               *prometheus.HistogramVec
}

// NewMetrics makes the metrics and registers them if r is not nil.
func NewMetrics(r prometheus.Registerer) *Metrics {
	const prefix = "fairlead_socks5_"
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + name, Help: help}, labels)
	}
	m := &Metrics{
		open:         prometheus.NewGauge(prometheus.GaugeOpts{Name: prefix + "open_connections", Help: "Connections of clients that are open."}),
		rejected:     prometheus.NewCounter(prometheus.CounterOpts{Name: prefix + "rejected_connections_total", Help: "Connections that were refused, or made room for others, because of a limit."}),
		connections:  counter("connections_total", "Connections that have ended.", "protocol", "kind", "result"),
		authFailures: counter("authentication_failures_total", "Logins and tokens that were wrong.", "protocol"),
		bytes:        counter("bytes_total", "Bytes of connections that have ended.", "direction"),
		dialSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: prefix + "dial_duration_seconds", Help: "Time to open connections to destinations.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
		}, []string{"kind"}),
	}
	if r != nil {
		r.MustRegister(m.open, m.rejected, m.connections, m.authFailures, m.bytes, m.dialSeconds)
	}
	return m
}

func known(label string) string {
	if label == "" {
		return "unknown"
	}
	return label
}

func (m *Metrics) ended(r *Record) {
	m.connections.WithLabelValues(known(r.Protocol), known(r.Kind), known(r.Result)).Inc()
	m.bytes.WithLabelValues("sent").Add(float64(r.BytesSent))
	m.bytes.WithLabelValues("received").Add(float64(r.BytesReceived))
}

func (m *Metrics) dialed(kind gateway.Kind, d time.Duration) {
	m.dialSeconds.WithLabelValues(known(string(kind))).Observe(d.Seconds())
}
