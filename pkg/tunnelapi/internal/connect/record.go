// SPDX-License-Identifier: Apache-2.0

package connect

import (
	"context"
	"errors"
	"net"
	"strconv"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"

	"github.com/fairlead-dev/fairlead/pkg/apis/tunnel/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/gateway"
	"github.com/fairlead-dev/fairlead/pkg/internal/logthrottle"
)

// auditPrefix is that of annotations in the audit log of this API server.
const auditPrefix = "connect." + v1alpha1.GroupName + "/"

// Results of a connection in addition to the reasons of a refusal.
const (
	resultOK      = "ok"      // both directions ended in order
	resultAborted = "aborted" // the connection was open, and was reset
)

var (
	openConnections = metrics.NewGauge(&metrics.GaugeOpts{
		Name: "fairlead_apiserver_connect_open_connections", StabilityLevel: metrics.ALPHA,
		Help: "Connections through agents that are open or being dialed.",
	})
	connections = metrics.NewCounterVec(&metrics.CounterOpts{
		Name: "fairlead_apiserver_connect_connections_total", StabilityLevel: metrics.ALPHA,
		Help: "Connections through agents that have ended, by kind of the destination and result.",
	}, []string{"kind", "result"})
	bytesMoved = metrics.NewCounterVec(&metrics.CounterOpts{
		Name: "fairlead_apiserver_connect_bytes_total", StabilityLevel: metrics.ALPHA,
		Help: "Bytes of connections that have ended, sent to destinations or received from them.",
	}, []string{"direction"})
	dialSeconds = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Name: "fairlead_apiserver_connect_dial_duration_seconds", StabilityLevel: metrics.ALPHA,
		Help: "Time to open connections to destinations, by kind.", Buckets: metrics.ExponentialBuckets(0.001, 2, 15),
	}, []string{"kind"})

	register = sync.OnceFunc(func() { legacyregistry.MustRegister(openConnections, connections, bytesMoved, dialSeconds) })
)

// record is what is logged and counted of a request. Its texts of the client are not longer than log lines may be.
type record struct {
	began          time.Time
	agent, client  string
	groups         []string
	auditID        string
	target         string
	d              gateway.Destination
	result         string
	err            error
	sent, received int64
}

func newRecord(ctx context.Context, agent string, o *v1alpha1.TunnelAgentConnectOptions) *record {
	r := &record{began: time.Now(), agent: logthrottle.Clip(agent), result: resultOK, target: net.JoinHostPort(logthrottle.Clip(o.Host), strconv.Itoa(int(o.Port)))}
	if u, ok := request.UserFrom(ctx); ok {
		r.client, r.groups = u.GetName(), u.GetGroups()
	}
	r.auditID = audit.GetAuditIDTruncated(ctx)
	audit.AddAuditAnnotation(ctx, auditPrefix+"destination", r.target)
	return r
}

func (r *record) destination(d gateway.Destination) { r.d = d }

func (r *record) refused(err error) { r.result, r.err = reasonOf(err), err }

// opened logs that a connection has begun: it may last for hours, and its last line is missing if the process is killed.
func (r *record) opened() {
	klog.InfoS("Connection opened", "user", r.client, "groups", r.groups, "agent", r.agent, "destination", r.target,
		"kind", r.d.Kind, "namespace", r.d.Namespace, "name", r.d.Name, "address", r.d.Addr.String(), "auditID", r.auditID)
}

// done logs and counts.
func (r *record) done() {
	kind := string(r.d.Kind)
	if kind == "" {
		kind = "unknown"
	}
	connections.WithLabelValues(kind, r.result).Inc()
	bytesMoved.WithLabelValues("sent").Add(float64(r.sent))
	bytesMoved.WithLabelValues("received").Add(float64(r.received))
	address, text := "", ""
	if r.d.Addr.IsValid() {
		address = r.d.Addr.String()
	}
	var hidden *hiddenError
	switch {
	case errors.As(r.err, &hidden):
		text = hidden.cause.Error()
	case r.err != nil:
		text = r.err.Error()
	}
	klog.InfoS("Connection ended", "user", r.client, "groups", r.groups, "agent", r.agent, "destination", r.target,
		"kind", r.d.Kind, "namespace", r.d.Namespace, "name", r.d.Name, "address", address, "result", r.result, "err", logthrottle.Clip(text),
		"bytesSent", r.sent, "bytesReceived", r.received, "seconds", time.Since(r.began).Seconds(), "auditID", r.auditID)
}
