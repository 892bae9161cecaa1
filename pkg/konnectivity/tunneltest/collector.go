// SPDX-License-Identifier: Apache-2.0

package tunneltest

import (
	"context"
	"net"
	"sync"
	"testing"

	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"

	"github.com/fairlead-dev/fairlead/pkg/internal/logtest"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/trace"
)

// Collector is an OpenTelemetry collector on grpc-go that keeps what it gets.
type Collector struct {
	collectorv1.UnimplementedTraceServiceServer
	Endpoint string // host:port, for a TracingConfiguration

	mu    sync.Mutex
	spans map[string][]*tracev1.Span // by service and name
}

// StartCollector listens on loopback.
func StartCollector(t testing.TB) *Collector {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c, s := &Collector{Endpoint: l.Addr().String(), spans: map[string][]*tracev1.Span{}}, grpc.NewServer()
	collectorv1.RegisterTraceServiceServer(s, c)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	return c
}

// Export is called by exporters.
func (c *Collector) Export(_ context.Context, r *collectorv1.ExportTraceServiceRequest) (*collectorv1.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, rs := range r.ResourceSpans {
		service := ""
		for _, a := range rs.GetResource().GetAttributes() {
			if a.Key == "service.name" {
				service = a.GetValue().GetStringValue()
			}
		}
		for _, ss := range rs.ScopeSpans {
			for _, s := range ss.Spans {
				c.spans[service+": "+s.Name] = append(c.spans[service+": "+s.Name], s)
			}
		}
	}
	return &collectorv1.ExportTraceServiceResponse{}, nil
}

// Get returns the newest span with a name, "SERVICE: SPAN"; an empty one if there is none.
func (c *Collector) Get(name string) *tracev1.Span {
	if all := c.All(name); len(all) > 0 {
		return all[len(all)-1]
	}
	return &tracev1.Span{}
}

// All returns the spans with a name, "SERVICE: SPAN".
func (c *Collector) All(name string) []*tracev1.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]*tracev1.Span(nil), c.spans[name]...)
}

// Names returns the names of all spans, for messages.
func (c *Collector) Names() (names []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name := range c.spans {
		names = append(names, name)
	}
	return names
}

// Tracer runs a tracer that exports to the collector and begins no trace of its own. What end returns has exported all spans.
func (c *Collector) Tracer(t testing.TB, program string) (tr *trace.Tracer, end func()) {
	t.Helper()
	tr = trace.New(trace.Config{Endpoint: c.Endpoint}, program, "v0", logtest.New(func(_ int, line string) { t.Error(line) }))
	tr.SetLastExport(Patience)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); tr.Run(ctx) }()
	end = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(end)
	return tr, end
}
