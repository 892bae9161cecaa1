package agent

import (
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/buf"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/metrics"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/wire"
)

// Metrics are the agent's metrics. Names before "fairlead" are those of the
// reference agent.
type Metrics struct {
	Registry *metrics.Registry

	dialSeconds    *metrics.Histogram
	serverFailures *metrics.Vec
	dialFailures   *metrics.Vec
	serverConns    *metrics.Value
	serverCount    *metrics.Value
	endpoints      *metrics.Value
	packets        *metrics.Vec
	streamErrors   *metrics.Vec
	LeaseLists     *metrics.Vec
	LeaseWatches   *metrics.Vec
	LeaseListTime  *metrics.HistogramVec
	connectFails   *metrics.Vec
	violations     *metrics.Vec
	unknownFrames  *metrics.Value
	strays         *metrics.Vec
	overflows      *metrics.Value
	evictions      *metrics.Vec

	toServer, fromServer [8]*metrics.Value
}

const prefix = "konnectivity_network_proxy_agent_"

// NewMetrics registers the agent's metrics.
func NewMetrics() *Metrics {
	r := &metrics.Registry{}
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
			metrics.DefaultBuckets),
		connectFails:  r.CounterVec("fairlead_tunnel_agent_connect_failures_total", "Failed attempts to connect to a server, by reason.", "reason"),
		violations:    r.CounterVec("fairlead_tunnel_agent_violations_total", "Times that a server broke the protocol, by rule: a stream or, with protocol, the connection ended.", "rule"),
		unknownFrames: r.Counter("fairlead_tunnel_agent_unknown_frames_total", "Frames and packets of unknown types, which were skipped: the server may be newer."),
		strays:        r.CounterVec("fairlead_tunnel_agent_stray_packets_total", "Packets for connections that are over or never were, by packet type. A few are normal: both ends may close at once.", "packet_type"),
		overflows:     r.Counter("fairlead_tunnel_agent_overflows_total", "Connections reset because their receiver lagged behind a server without flow control."),
		evictions:     r.CounterVec("fairlead_tunnel_agent_evictions_total", "Connections reset because what their destinations did not read took too much memory, by the bound that was exceeded.", "bound"),
	}
	r.Func("fairlead_tunnel_agent_buffered_bytes", "Bytes held in queues.", "gauge", func() float64 { return float64(buf.InUse()) })
	r.AddProcess()
	for t := range m.toServer {
		m.toServer[t] = m.packets.With("from_agent", wire.Type(t).String())
		m.fromServer[t] = m.packets.With("to_agent", wire.Type(t).String())
	}
	return m
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
