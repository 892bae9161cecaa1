// SPDX-License-Identifier: Apache-2.0

package promtext

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// Registry is a set of metrics.
type Registry struct {
	mu      sync.Mutex
	metrics []metric
	before  []func()
}

type metric interface {
	name() string
	write(w io.Writer)
}

type desc struct{ n, help, typ string }

func (d *desc) name() string { return d.n }

func (d *desc) header(w io.Writer) {
	fmt.Fprintf(w, "# HELP %s %s\n# TYPE %s %s\n", d.n, d.help, d.n, d.typ)
}

func (r *Registry) add(m metric) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range r.metrics {
		if o.name() == m.name() {
			panic("metric registered twice: " + m.name())
		}
	}
	r.metrics = append(r.metrics, m)
}

// Before has f called each time before the metrics are written, to set gauges that are
// cheaper to find out than to keep.
func (r *Registry) Before(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.before = append(r.before, f)
}

// Write writes all metrics, sorted by name.
func (r *Registry) Write(w io.Writer) {
	r.mu.Lock()
	ms := append([]metric(nil), r.metrics...)
	before := r.before
	r.mu.Unlock()
	for _, f := range before {
		f()
	}
	sort.Slice(ms, func(i, j int) bool { return ms[i].name() < ms[j].name() })
	for _, m := range ms {
		m.write(w)
	}
}

// ServeHTTP serves the text format.
func (r *Registry) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	b := bufio.NewWriter(w)
	r.Write(b)
	_ = b.Flush()
}

// Value is a counter or gauge without labels, or one child of a Vec.
type Value struct{ bits atomic.Int64 }

// Inc adds 1.
func (v *Value) Inc() { v.bits.Add(1) }

// IncBelow adds 1 unless the value is limit or more; false then. Of several callers at
// once no more add than there is room for.
func (v *Value) IncBelow(limit int) bool {
	for {
		n := v.bits.Load()
		if n >= int64(limit) {
			return false
		}
		if v.bits.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// Dec subtracts 1; gauges only.
func (v *Value) Dec() { v.bits.Add(-1) }

// Add adds n.
func (v *Value) Add(n int64) { v.bits.Add(n) }

// Set sets a gauge.
func (v *Value) Set(n int64) { v.bits.Store(n) }

// Get returns the value.
func (v *Value) Get() int64 { return v.bits.Load() }

type single struct {
	desc
	Value
}

func (s *single) write(w io.Writer) {
	s.header(w)
	fmt.Fprintf(w, "%s %d\n", s.n, s.Get())
}

// Counter registers a counter.
func (r *Registry) Counter(name, help string) *Value {
	s := &single{desc: desc{name, help, "counter"}}
	r.add(s)
	return &s.Value
}

// Gauge registers a gauge.
func (r *Registry) Gauge(name, help string) *Value {
	s := &single{desc: desc{name, help, "gauge"}}
	r.add(s)
	return &s.Value
}

type function struct {
	desc
	f func() float64
}

func (f *function) write(w io.Writer) {
	f.header(w)
	fmt.Fprintf(w, "%s %s\n", f.n, number(f.f()))
}

// Func registers a metric that is computed when it is read.
func (r *Registry) Func(name, help, typ string, f func() float64) {
	r.add(&function{desc{name, help, typ}, f})
}

// Vec is a counter or gauge with labels.
type Vec struct {
	desc
	labels []string
	mu     sync.RWMutex
	kids   map[string]*Value
}

// CounterVec registers a counter with labels.
func (r *Registry) CounterVec(name, help string, labels ...string) *Vec {
	v := &Vec{desc: desc{name, help, "counter"}, labels: labels, kids: map[string]*Value{}}
	r.add(v)
	return v
}

// GaugeVec registers a gauge with labels.
func (r *Registry) GaugeVec(name, help string, labels ...string) *Vec {
	v := r.CounterVec(name, help, labels...)
	v.typ = "gauge"
	return v
}

// With returns the child with these label values. Keep it where it is hot.
func (v *Vec) With(values ...string) *Value {
	key := labelText(v.labels, values)
	v.mu.RLock()
	kid := v.kids[key]
	v.mu.RUnlock()
	if kid != nil {
		return kid
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if kid = v.kids[key]; kid == nil {
		kid = &Value{}
		v.kids[key] = kid
	}
	return kid
}

// Show shows children at 0 before anything is counted, one for each value of the only label: for Prometheus, a counter that begins with another
// value has not increased.
func (v *Vec) Show(values ...string) {
	for _, value := range values {
		v.With(value)
	}
}

func (v *Vec) write(w io.Writer) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	v.header(w)
	keys := make([]string, 0, len(v.kids))
	for k := range v.kids {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	for _, k := range keys {
		fmt.Fprintf(w, "%s%s %d\n", v.n, k, v.kids[k].Get())
	}
}

var escaper = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)

func labelText(labels, values []string) string {
	if len(labels) == 0 {
		return ""
	}
	var b strings.Builder
	for i, l := range labels {
		b.WriteByte("{,"[min(i, 1)])
		fmt.Fprintf(&b, `%s="%s"`, l, escaper.Replace(values[i]))
	}
	return b.String() + "}"
}

// DefaultBuckets are those of the usual client library.
var DefaultBuckets = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}

func number(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }
