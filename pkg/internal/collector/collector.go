// SPDX-License-Identifier: Apache-2.0

// Package collector makes Go's garbage collector run less often in programs with a small heap: GOGC's percentage of a
// small heap is small, and each run has the same cost for threads and stacks. Start at Tuning.
package collector

import (
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Tuning is how much garbage there may be before the collector runs.
type Tuning struct {
	// Percent is relative to the live heap, as in GOGC.
	Percent int
	// Extra is a number of bytes beyond that. A higher percentage would cost as many times a large heap; this
	// costs the same everywhere.
	Extra uint64
	// Room is the least memory limit, in bytes, with which there may be Extra: of the container, or of the cgroups that
	// the process is in.
	Room int64
}

// Allowed returns false if the environment sets GOGC or GOMEMLIMIT, or if the memory limit is below Room. root is the
// directory below which Linux exposes that limit: "/", except in tests.
func (t Tuning) Allowed(getenv func(string) string, root string) bool {
	return getenv("GOGC") == "" && getenv("GOMEMLIMIT") == "" && MemoryLimit(root) >= t.Room
}

// MemoryLimit is the least memory limit in bytes of the cgroups that the process is in, of either version; math.MaxInt64 if
// there is none. A container may see its own cgroup at the top of the tree, whatever it is called outside.
func MemoryLimit(root string) int64 {
	least := int64(math.MaxInt64)
	data, _ := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	for line := range strings.Lines(string(data)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		tree, file := filepath.Join(root, "sys/fs/cgroup"), "memory.max"
		if parts[1] != "" {
			if !slices.Contains(strings.Split(parts[1], ","), "memory") {
				continue
			}
			tree, file = filepath.Join(tree, "memory"), "memory.limit_in_bytes"
		}
		for dir := filepath.Join("/", parts[2]); ; dir = filepath.Dir(dir) {
			// "max" is no number, and no limit.
			text, _ := os.ReadFile(filepath.Join(tree, dir, file))
			if limit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil {
				least = min(least, limit)
			}
			if dir == "/" {
				break
			}
		}
	}
	return least
}

// percent is the GOGC that allows for the garbage when that many bytes are alive.
func (t Tuning) percent(live uint64) int {
	const least = 4 << 20 // Go's own smallest heap
	return t.Percent + int(100*t.Extra/max(live, least))
}

// Start sets the percentage, now and after each run of the collector, from what it has found alive. It returns what ends
// that and restores the percentage of before.
func (t Tuning) Start() (stop func()) {
	r := &tuner{tuning: t, percent: -1}
	before := r.set()
	r.arm()
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.stopped = true
		debug.SetGCPercent(before)
	}
}

type tuner struct {
	tuning  Tuning
	mu      sync.Mutex
	percent int
	stopped bool
}

// arm has the percentage set after the collector's next run, and so on: what is garbage already is cleaned up then.
func (r *tuner) arm() {
	runtime.AddCleanup(new([16]byte), func(r *tuner) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if !r.stopped {
			r.set()
			r.arm()
		}
	}, r)
}

// set returns the percentage of before. To change it stops the program for a moment, so it stays where it is about right.
func (r *tuner) set() (before int) {
	want := r.tuning.percent(alive())
	if off := want - r.percent; r.percent >= 0 && max(off, -off) <= r.percent/32 {
		return r.percent
	}
	r.percent = want
	return debug.SetGCPercent(want)
}

// alive is what the collector found on its last run: GOGC is a percentage of these three together.
func alive() (sum uint64) {
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"}}
	metrics.Read(samples)
	for _, s := range samples {
		sum += s.Value.Uint64()
	}
	return sum
}
