// SPDX-License-Identifier: Apache-2.0

package server

import (
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/buffer"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/membudget"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/promtext"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/wire"
)

// Metrics are the server's metrics. Names before "fairlead" are those of
// upstream's server.
type Metrics struct {
	Registry *promtext.Registry

	dialSeconds   *promtext.Histogram
	writeSeconds  *promtext.Histogram
	grpcConns     *promtext.Vec
	httpConns     *promtext.Value
	backendsOld   *promtext.Value
	backends      *promtext.Vec
	pendingDials  *promtext.Value
	established   *promtext.Value
	fullChannels  *promtext.Vec
	dialFailures  *promtext.Vec
	packets       *promtext.Vec
	streamErrors  *promtext.Vec
	frontendsLost *promtext.Value // one of streamErrors
	CulledLeases  *promtext.Value
	LeaseDelTime  *promtext.HistogramVec
	LeaseDeletes  *promtext.Vec
	LeaseListTime *promtext.HistogramVec
	LeaseLists    *promtext.Vec

	dialErrors       *promtext.Vec
	refused          *promtext.Vec
	badInput         *promtext.Vec
	strays           *promtext.Vec
	redials          *promtext.Value
	overflows        *promtext.Value
	evictions        *promtext.Vec
	tokenAgain       *promtext.Vec
	certificateAgain *promtext.Vec
	expelled         *promtext.Vec
	sharedID         *promtext.Value
	links            *promtext.Vec
	tokenReview      *promtext.Vec
	turnedAway       *promtext.Vec
	disputed         *promtext.Value
	certExpiry       *promtext.Vec
	// unknownFrames is not badInput: newer agents may send them.
	unknownFrames *promtext.Value

	segments map[string]*[8]*promtext.Value
}

// prefix begins the names of upstream's metrics: search for what follows it, such as dial_duration_seconds.
const prefix = "konnectivity_network_proxy_server_"

var latencyBuckets = []float64{0.000001, 0.00001, 0.0001, 0.005, 0.025, 0.1, 0.5, 2.5, 12.5}

// NewMetrics registers the server's metrics.
func NewMetrics() *Metrics {
	r := &promtext.Registry{}
	m := &Metrics{
		Registry:      r,
		dialSeconds:   r.Histogram(prefix+"dial_duration_seconds", "Latency of dial to the remote endpoint in seconds", latencyBuckets),
		writeSeconds:  r.Histogram(prefix+"frontend_write_duration_seconds", "Latency of write to the frontend in seconds", latencyBuckets),
		grpcConns:     r.GaugeVec(prefix+"grpc_connections", "Number of current grpc connections, partitioned by service method.", "service_method"),
		httpConns:     r.Gauge(prefix+"http_connections", "Number of current HTTP CONNECT connections"),
		backendsOld:   r.Gauge(prefix+"ready_backend_connections", "Number of konnectivity agent connected to the proxy server. DEPRECATED, please use ready_backends"),
		backends:      r.GaugeVec(prefix+"ready_backends", "Number of konnectivity agent connected to the proxy server", "proxy_strategy"),
		pendingDials:  r.Gauge(prefix+"pending_backend_dials", "Current number of pending backend dial requests"),
		established:   r.Gauge(prefix+"established_connections", "Current number of established end-to-end connections (post-dial)."),
		fullChannels:  r.GaugeVec(prefix+"full_receive_channels", "Number of current connections blocked by a full receive channel, partitioned by service method.", "service_method"),
		dialFailures:  r.CounterVec(prefix+"dial_failure_count", "Number of dial failures observed. Multiple failures can occur for a single dial request.", "reason"),
		packets:       r.CounterVec(prefix+"stream_packets_total", "Count of packets processed, by segment and packet type (example: from_client, DIAL_REQ)", "segment", "packet_type"),
		streamErrors:  r.CounterVec(prefix+"stream_errors_total", "Count of gRPC stream errors, by segment, grpc Code, packet type. (example: from_agent, Code.Unavailable, DIAL_RSP)", "segment", "code", "packet_type"),
		CulledLeases:  r.Counter(prefix+"culled_leases_count", "Count of expired leases that the lease garbage collection controller has culled."),
		LeaseDelTime:  r.HistogramVec(prefix+"lease_delete_latency_seconds", "Latency of lease deletion calls by the garbage collection controller in seconds.", "http_status_code", promtext.DefaultBuckets),
		LeaseDeletes:  r.CounterVec(prefix+"lease_delete_total", "Count of lease deletion calls by the garbage collection controller. Labeled by HTTP status code and reason.", "http_status_code", "reason"),
		LeaseListTime: r.HistogramVec(prefix+"lease_list_latency_seconds", "Latency of lease list calls by the garbage collection controller in seconds.", "http_status_code", promtext.DefaultBuckets),
		LeaseLists:    r.CounterVec(prefix+"lease_list_total", "Count of lease list calls by the garbage collection controller. Labeled by HTTP status code and reason.", "http_status_code", "reason"),

		dialErrors:       r.CounterVec("fairlead_tunnel_server_dial_errors_total", "Failed dials by kind.", "kind"),
		refused:          r.CounterVec("fairlead_tunnel_server_agents_refused_total", "Agents that were not accepted, by reason.", "reason"),
		badInput:         r.CounterVec("fairlead_tunnel_server_bad_input_total", "Connections or streams ended because of what the peer sent, by peer.", "peer"),
		strays:           r.CounterVec("fairlead_tunnel_server_stray_packets_total", "Packets for connections that are over or never were, by peer and packet type. A few are normal: both ends may close at once.", "peer", "packet_type"),
		unknownFrames:    r.Counter("fairlead_tunnel_server_unknown_frames_total", "Frames and packets of unknown types, which were skipped: the peer may be newer."),
		redials:          r.Counter("fairlead_tunnel_server_redials_total", "Dials that were given to another agent because the first did not answer."),
		overflows:        r.Counter("fairlead_tunnel_server_overflows_total", "Connections reset because their receiver lagged behind an agent without flow control."),
		evictions:        r.CounterVec("fairlead_tunnel_server_evictions_total", "Connections reset because what their clients did not read took too much memory, by the bound that was exceeded.", "bound"),
		certificateAgain: r.CounterVec("fairlead_tunnel_server_certificate_reviews_total", "Reviews of connected agents' certificates, by result.", "result"),
		tokenAgain:       r.CounterVec("fairlead_tunnel_server_token_reviews_total", "Reviews of connected agents' tokens, by result.", "result"),
		expelled:         r.CounterVec("fairlead_tunnel_server_links_expelled_total", "Connections of agents that were drained because their token was no longer accepted, by protocol.", "protocol"),
		sharedID:         r.Counter("fairlead_tunnel_server_shared_id_total", "Agents that were connected to another server with this server's ID."),
		links:            r.GaugeVec("fairlead_tunnel_server_links", "Current connections of agents, by protocol.", "protocol"),
		tokenReview:      r.CounterVec("fairlead_tunnel_server_token_checks_total", "Checks of agents' tokens, by result.", "result"),
		turnedAway:       r.CounterVec("fairlead_tunnel_server_turned_away_total", "Connections refused because there were no free file descriptors, by listener.", "listener"),
		disputed:         r.Counter("fairlead_tunnel_server_disputed_hosts_total", "Times that agents of more than one node claimed a host, or an agent claimed an address of Pods or Services, which strategy destHost then uses for none."),
		certExpiry:       r.GaugeVec("fairlead_tunnel_server_certificate_expiration_timestamp_seconds", "When the certificate in use expires, in seconds since the Unix epoch, by the peers that it is for.", "peer"),
		segments:         map[string]*[8]*promtext.Value{},
	}
	m.frontendsLost = m.streamErrors.With("from_client", "Canceled", "Unknown")
	r.Func("fairlead_tunnel_server_buffered_bytes", "Bytes held in queues.", "gauge", func() float64 { return float64(buffer.InUse()) })
	r.AddProcess()
	m.evictions.Show(membudget.Bounds...)
	m.turnedAway.Show(listenerGRPC, listenerConnect, listenerAgents)
	m.tokenAgain.Show("accepted", "expired", "refused", "failed")
	m.badInput.Show("agent", "client")
	m.refused.Show("tls", "protocol", "handshake", "token", "claims", "identifiers", "limit", "draining", "path", "flood")
	for _, seg := range []string{"from_client", "to_client", "from_agent", "to_agent"} {
		var a [8]*promtext.Value
		for t := range a {
			a[t] = m.packets.With(seg, wire.Type(t).String())
		}
		m.segments[seg] = &a
	}
	return m
}

// ReportCertificate has the registry show when the certificate for a kind of peers, "agents" or "clients", expires.
func (m *Metrics) ReportCertificate(peer string, notAfter func() time.Time) {
	m.Registry.Before(func() {
		if t := notAfter(); !t.IsZero() {
			m.certExpiry.With(peer).Set(t.Unix())
		}
	})
}

// wrote counts a write to a frontend with the time for which it waited for the frontend:
// a packet of the gRPC service, or a chunk for a socket of HTTP CONNECT.
func (m *Metrics) wrote(took time.Duration) { m.writeSeconds.Observe(took.Seconds()) }

// observe counts a packet; the segment is one of the four of NewMetrics.
func (m *Metrics) observe(segment *[8]*promtext.Value, t wire.Type) {
	if t < 0 || int(t) >= len(segment) {
		t = wire.Type(len(segment) - 1)
	}
	segment[t].Inc()
}
