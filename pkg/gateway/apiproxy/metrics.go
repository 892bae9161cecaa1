// SPDX-License-Identifier: Apache-2.0

package apiproxy

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics of a proxy. All labels have few values, whatever clients send.
type metrics struct {
	requests *prometheus.CounterVec
	refused  *prometheus.CounterVec
	bytes    *prometheus.CounterVec
	inFlight *prometheus.GaugeVec
	duration prometheus.Histogram
}

func newMetrics(registry prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "fairlead_proxy_requests_total",
			Help: "Requests that have ended, by method and status; 499: the client went away, 0: the answer was cut short."}, []string{"method", "code"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "fairlead_proxy_refused_total",
			Help: "Requests that the proxy answered itself, by reason."}, []string{"reason"}),
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "fairlead_proxy_bytes_total",
			Help: "Bytes of bodies and upgraded connections, seen from the proxy's clients: sent to them or received from them."}, []string{"direction"}),
		inFlight: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "fairlead_proxy_requests_in_flight",
			Help: "Requests that are being answered, by kind: request, stream (watch, followed log) or upgrade (exec, port-forward)."}, []string{"kind"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "fairlead_proxy_request_duration_seconds",
			Help:    "How long requests took that are neither streams nor upgrades.",
			Buckets: []float64{.001, .005, .01, .05, .1, .5, 1, 5, 10, 60}}),
	}
	if registry == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.requests, m.refused, m.bytes, m.inFlight, m.duration} {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("registering metrics: %w", err)
		}
	}
	return m, nil
}

var methods = []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions}

func methodLabel(method string) string {
	if slices.Contains(methods, method) {
		return method
	}
	return "other"
}

// statusLabel is the code; an API server has three digits, a Service may send any.
func statusLabel(status int) string {
	if status < 0 || status > 599 {
		return "other"
	}
	return strconv.Itoa(status)
}
