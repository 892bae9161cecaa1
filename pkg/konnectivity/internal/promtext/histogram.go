// SPDX-License-Identifier: Apache-2.0

package promtext

import (
	"fmt"
	"io"
	"math"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
)

// Histogram counts observations in buckets.
type Histogram struct {
	desc
	label  string // rendered labels or empty
	bounds []float64
	counts []atomic.Int64
	sum    atomic.Uint64
}

// Histogram registers a histogram with the given upper bounds.
func (r *Registry) Histogram(name, help string, bounds []float64) *Histogram {
	h := newHistogram(desc{name, help, "histogram"}, "", bounds)
	r.add(h)
	return h
}

func newHistogram(d desc, label string, bounds []float64) *Histogram {
	return &Histogram{desc: d, label: label, bounds: bounds, counts: make([]atomic.Int64, len(bounds)+1)}
}

// Observe counts one value.
func (h *Histogram) Observe(v float64) {
	h.counts[sort.SearchFloat64s(h.bounds, v)].Add(1)
	for v != 0 {
		old := h.sum.Load()
		if h.sum.CompareAndSwap(old, math.Float64bits(math.Float64frombits(old)+v)) {
			return
		}
	}
}

// Count is the number of observations.
func (h *Histogram) Count() (n int64) {
	for i := range h.counts {
		n += h.counts[i].Load()
	}
	return n
}

func (h *Histogram) write(w io.Writer) {
	h.header(w)
	h.series(w)
}

func (h *Histogram) series(w io.Writer) {
	open := "{"
	if h.label != "" {
		open = strings.TrimSuffix(h.label, "}") + ","
	}
	var n int64
	for i := range h.counts {
		n += h.counts[i].Load()
		le := "+Inf"
		if i < len(h.bounds) {
			le = number(h.bounds[i])
		}
		fmt.Fprintf(w, "%s_bucket%sle=\"%s\"} %d\n", h.n, open, le, n)
	}
	fmt.Fprintf(w, "%s_sum%s %s\n", h.n, h.label, number(math.Float64frombits(h.sum.Load())))
	fmt.Fprintf(w, "%s_count%s %d\n", h.n, h.label, n)
}

// HistogramVec is a histogram with one label.
type HistogramVec struct {
	desc
	label  string
	bounds []float64
	mu     sync.Mutex
	kids   map[string]*Histogram
}

// HistogramVec registers a histogram with one label.
func (r *Registry) HistogramVec(name, help, label string, bounds []float64) *HistogramVec {
	h := &HistogramVec{desc: desc{name, help, "histogram"}, label: label, bounds: bounds, kids: map[string]*Histogram{}}
	r.add(h)
	return h
}

// With returns the child with this label value.
func (h *HistogramVec) With(value string) *Histogram {
	h.mu.Lock()
	defer h.mu.Unlock()
	kid := h.kids[value]
	if kid == nil {
		kid = newHistogram(h.desc, labelText([]string{h.label}, []string{value}), h.bounds)
		h.kids[value] = kid
	}
	return kid
}

func (h *HistogramVec) write(w io.Writer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.header(w)
	for _, k := range h.kids {
		k.series(w)
	}
}
