// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/buffer"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/membudget"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/promtext"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/wire"
)

// Metrics are the agent's metrics. Names before "fairlead" are those of
// upstream's agent.
type Metrics struct {
	Registry *promtext.Registry

	dialSeconds    *promtext.Histogram
	serverFailures *promtext.Vec
	dialFailures   *promtext.Vec
	serverConns    *promtext.Value
	serverCount    *promtext.Value
	endpoints      *promtext.Value
	packets        *promtext.Vec
	streamErrors   *promtext.Vec
	LeaseLists     *promtext.Vec
	LeaseWatches   *promtext.Vec
	LeaseListTime  *promtext.HistogramVec
	connectFails   *promtext.Vec
	violations     *promtext.Vec
	unknownFrames  *promtext.Value
	strays         *promtext.Vec
	overflows      *promtext.Value
	evictions      *promtext.Vec
	missing        *promtext.Value
	certExpiry     *promtext.Vec

	toServer, fromServer [8]*promtext.Value
}

// prefix begins the names of upstream's metrics: search for what follows it, such as dial_duration_seconds.
const prefix = "konnectivity_network_proxy_agent_"

// NewMetrics registers the agent's metrics.
func NewMetrics() *Metrics {
	r := &promtext.Registry{}
	m := &Metrics{
		Registry: r,
		dialSeconds: r.Histogram(prefix+"dial_duration_seconds", "Latency of dial to the remote endpoint in seconds",
			[]float64{0.005, 0.025, 0.1, 0.5, 2.5, 10, 30}),
		serverFailures: r.CounterVec(prefix+"server_connection_failure_count",
			"Count of failures to send to or receive from the proxy server, labeled by the direction (from_server or to_server). DEPRECATED, please use stream_events_error_total", "direction"),
		dialFailures: r.CounterVec(prefix+"endpoint_dial_failure_total",
			"Number of failures dialing the remote endpoint, by reason (example: timeout).", "reason"),
		serverConns:  r.Gauge(prefix+"open_server_connections", "Current number of open server connections."),
		serverCount:  r.Gauge(prefix+"known_server_count", "Current number of servers agent is trying to connect to."),
		endpoints:    r.Gauge(prefix+"open_endpoint_connections", "Current number of open endpoint connections."),
		packets:      r.CounterVec(prefix+"stream_packets_total", "Count of packets processed, by segment and packet type (example: from_client, DIAL_REQ)", "segment", "packet_type"),
		streamErrors: r.CounterVec(prefix+"stream_errors_total", "Count of gRPC stream errors, by segment, grpc Code, packet type. (example: from_agent, Code.Unavailable, DIAL_RSP)", "segment", "code", "packet_type"),
		LeaseLists:   r.CounterVec(prefix+"lease_lists_total", "Count of server lease list calls made by the agent to the k8s apiserver, labeled by HTTP response code and reason", "http_response_code", "reason"),
		LeaseWatches: r.CounterVec(prefix+"lease_watches_total", "Count of server lease watch calls made by the agent to the k8s apiserver, labeled by HTTP response code and reason", "http_response_code", "reason"),
		LeaseListTime: r.HistogramVec(prefix+"lease_list_latency_seconds", "Latency of server lease listing in seconds", "http_response_code",
			promtext.DefaultBuckets),
		connectFails:  r.CounterVec("fairlead_tunnel_agent_connect_failures_total", "Failed attempts to connect to a server, by reason.", "reason"),
		violations:    r.CounterVec("fairlead_tunnel_agent_violations_total", "Times that a server broke the protocol, by rule: a stream or, with protocol, the connection ended.", "rule"),
		unknownFrames: r.Counter("fairlead_tunnel_agent_unknown_frames_total", "Frames and packets of unknown types, which were skipped: the server may be newer."),
		strays:        r.CounterVec("fairlead_tunnel_agent_stray_packets_total", "Packets for connections that are over or never were, by packet type. A few are normal: both ends may close at once.", "packet_type"),
		overflows:     r.Counter("fairlead_tunnel_agent_overflows_total", "Connections reset because their receiver lagged behind a server without flow control."),
		evictions:     r.CounterVec("fairlead_tunnel_agent_evictions_total", "Connections reset because what their destinations did not read took too much memory, by the bound that was exceeded.", "bound"),
		certExpiry:    r.GaugeVec("fairlead_tunnel_agent_certificate_expiration_timestamp_seconds", "When the certificate in use expires, in seconds since the Unix epoch, by the peers that it is for.", "peer"),
		missing:       r.Gauge("fairlead_tunnel_agent_missing_servers", "Servers that there are and that the agent is not connected to."),
	}
	r.Func("fairlead_tunnel_agent_buffered_bytes", "Bytes held in queues.", "gauge", func() float64 { return float64(buffer.InUse()) })
	r.AddProcess()
	m.evictions.Show(membudget.Bounds...)
	m.serverFailures.Show("from_server")
	for t := range m.toServer {
		m.toServer[t] = m.packets.With("from_agent", wire.Type(t).String())
		m.fromServer[t] = m.packets.With("to_agent", wire.Type(t).String())
	}
	return m
}

// ReportCertificate has the registry show when the agent's certificate expires. An agent that authenticates with a token
// has none.
func (m *Metrics) ReportCertificate(notAfter func() time.Time) {
	m.Registry.Before(func() {
		if t := notAfter(); !t.IsZero() {
			m.certExpiry.With("servers").Set(t.Unix())
		}
	})
}

func (m *Metrics) observe(received bool, t wire.Type) {
	if t < 0 || int(t) >= len(m.toServer) {
		t = wire.Type(len(m.toServer) - 1)
	}
	if received {
		m.fromServer[t].Inc()
	} else {
		m.toServer[t].Inc()
	}
}
