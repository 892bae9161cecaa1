// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	mathrand "math/rand/v2"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/fairlead-dev/fairlead/pkg/internal/neterr"
	"github.com/fairlead-dev/fairlead/pkg/internal/traceparent"
)

// Kind is OTLP's kind of a span.
type Kind int32

const (
	// Internal is a step within a program.
	Internal Kind = 1
	// Server is the handling of another program's request.
	Server Kind = 2
	// Client is a request to another program.
	Client Kind = 3
)

const (
	// queued is how many ended spans wait for the exporter; more are dropped and counted.
	queued = 2048
	// batched is how many spans one request has at most.
	batched = 512
	// exportEvery is how long an ended span waits at most for others.
	exportEvery = 5 * time.Second
	// lastExport is how long a program that stops waits for the collector, unless SetLastExport changes it.
	lastExport = time.Second
)

// Tracer makes spans and exports them. A nil Tracer records none.
type Tracer struct {
	cfg   Config
	ended chan *Span
	out   *exporter
	log   logr.Logger

	lastExport time.Duration

	mu      sync.Mutex
	dropped int
}

// New returns a tracer for a program. Run must be called.
func New(cfg Config, program, version string, logger logr.Logger) *Tracer {
	return &Tracer{cfg: cfg, ended: make(chan *Span, queued), out: newExporter(cfg.Endpoint, program, version), log: logger, lastExport: lastExport}
}

// SetLastExport sets how long Run may take after the end of its context. Call it before Run.
func (t *Tracer) SetLastExport(d time.Duration) { t.lastExport = d }

// Span is a recorded piece of work. A nil Span is not recorded. Set and End must not be called at the same time.
type Span struct {
	t          *Tracer
	name       string
	kind       Kind
	ctx        traceparent.Context
	parent     [8]byte
	start, end time.Time
	attributes [][2]string
	failure    string
}

// Start begins a span, and returns the context to pass on. It is recorded if the parent is; without a parent, the
// configured share is. If it is not recorded the parent is passed on.
func (t *Tracer) Start(parent traceparent.Context, name string, kind Kind) (*Span, traceparent.Context) {
	if t == nil || !t.samples(parent) {
		return nil, parent
	}
	s := &Span{t: t, name: name, kind: kind, start: time.Now()}
	s.ctx.Sampled = true
	if parent.Valid() {
		s.ctx.TraceID, s.parent = parent.TraceID, parent.SpanID
	} else {
		_, _ = rand.Read(s.ctx.TraceID[:]) // never fails
	}
	binary.BigEndian.PutUint64(s.ctx.SpanID[:], mathrand.Uint64()|1) // 0 is not valid
	return s, s.ctx
}

func (t *Tracer) samples(parent traceparent.Context) bool {
	if parent.Valid() {
		return parent.Sampled
	}
	return mathrand.IntN(million) < t.cfg.SamplingRatePerMillion
}

// Set adds an attribute.
func (s *Span) Set(key, value string) {
	if s != nil {
		s.attributes = append(s.attributes, [2]string{key, value})
	}
}

// End ends the span; failure is empty for success. It does not block.
func (s *Span) End(failure string) {
	if s == nil {
		return
	}
	s.end, s.failure = time.Now(), failure
	select {
	case s.t.ended <- s:
	default:
		s.t.mu.Lock()
		s.t.dropped++
		s.t.mu.Unlock()
	}
}

// Run exports spans until ctx ends, and then those that have ended by then.
func (t *Tracer) Run(ctx context.Context) {
	if t == nil {
		return
	}
	tick := time.NewTicker(exportEvery)
	defer tick.Stop()
	defer t.out.close()
	batch := make([]*Span, 0, batched)
	failed := ""
	flush := func(ctx context.Context) {
		if len(batch) == 0 {
			return
		}
		err := t.out.export(ctx, batch)
		failed = t.report(failed, err, len(batch))
		batch = batch[:0]
	}
	for {
		select {
		case s := <-t.ended:
			if batch = append(batch, s); len(batch) == batched {
				flush(ctx)
			}
		case <-tick.C:
			flush(ctx)
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.lastExport)
			defer cancel()
			for len(t.ended) > 0 && len(batch) < batched {
				batch = append(batch, <-t.ended)
			}
			flush(last)
			return
		}
	}
}

// report logs the first of equal failures, and recovery. It returns the failure to compare the next one with.
func (t *Tracer) report(before string, err error, spans int) string {
	err = neterr.Steady(err)
	t.mu.Lock()
	dropped := t.dropped
	t.dropped = 0
	t.mu.Unlock()
	if dropped > 0 {
		t.log.Error(nil, "Dropped spans: the collector is too slow or not reachable", "spans", dropped, "endpoint", t.cfg.Endpoint)
	}
	switch {
	case err == nil && before != "":
		t.log.V(1).Info("Exporting spans again", "endpoint", t.cfg.Endpoint)
	case err != nil && err.Error() != before:
		t.log.Error(err, "Cannot export spans: check endpoint in the file of --tracing-config-file", "spans", spans, "endpoint", t.cfg.Endpoint)
	}
	if err != nil {
		return err.Error()
	}
	return ""
}
