package scheduler

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"sync"
)

const (
	// extraGarbage may be there before the garbage collector runs, beyond as much garbage as there is live heap, which is
	// Go's default. With 1,000 nodes, where 50 MiB are live, it runs less than half as often. A higher GOGC would cost as
	// many times the heap as it has percent, which with 5,000 nodes is gigabytes; this costs 64 MiB everywhere.
	extraGarbage = 64 << 20
	// roomForGarbage is the least memory limit of a container with which there may be that much.
	roomForGarbage = 512 << 20

	memoryLimitFile = "/sys/fs/cgroup/memory.max"
	liveHeap        = "/gc/heap/live:bytes"
)

// mayTuneCollector is false where somebody has set the collector's variables, or where memory is scarce.
func mayTuneCollector(getenv func(string) string, limitFile string) bool {
	if getenv("GOGC") != "" || getenv("GOMEMLIMIT") != "" {
		return false
	}
	data, err := os.ReadFile(limitFile)
	if err != nil {
		return true // no cgroup, no limit
	}
	// "max" is no number, and no limit.
	limit, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
	return err != nil || limit >= roomForGarbage
}

// collectorPercent is the GOGC that allows extraGarbage with a live heap of a size.
func collectorPercent(live uint64) int {
	const least = 4 << 20 // Go's own smallest heap
	return 100 + int(100*extraGarbage/max(live, least))
}

// tuneCollector sets the percentage after each run of the collector, from what it has found alive. It returns what ends
// that and restores the percentage.
func tuneCollector() (stop func()) {
	t := &collectorTuner{}
	before := t.set()
	t.arm()
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.stopped = true
		debug.SetGCPercent(before)
	}
}

type collectorTuner struct {
	mu      sync.Mutex
	stopped bool
}

// arm has the percentage set after the collector's next run, and so on: what is garbage already is cleaned up then.
func (t *collectorTuner) arm() {
	runtime.AddCleanup(new([16]byte), func(t *collectorTuner) {
		t.mu.Lock()
		defer t.mu.Unlock()
		if !t.stopped {
			t.set()
			t.arm()
		}
	}, t)
}

// set returns the percentage of before.
func (t *collectorTuner) set() int {
	sample := []metrics.Sample{{Name: liveHeap}}
	metrics.Read(sample)
	return debug.SetGCPercent(collectorPercent(sample[0].Value.Uint64()))
}
