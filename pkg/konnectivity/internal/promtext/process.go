// SPDX-License-Identifier: Apache-2.0

package promtext

import (
	"os"
	"runtime"
	rm "runtime/metrics"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// AddProcess registers the usual metrics about the process and the Go runtime
// under their usual names.
func (r *Registry) AddProcess() {
	start := float64(time.Now().UnixMilli()) / 1000
	gauge := func(name, help string, f func() float64) { r.Func(name, help, "gauge", f) }
	r.Func("process_cpu_seconds_total", "Total user and system CPU time spent in seconds.", "counter", cpuSeconds)
	gauge("process_open_fds", "Number of open file descriptors.", openFDs)
	gauge("process_max_fds", "Maximum number of open file descriptors.", maxFDs)
	gauge("process_resident_memory_bytes", "Resident memory size in bytes.", residentBytes)
	gauge("process_start_time_seconds", "Start time of the process since unix epoch in seconds.", func() float64 { return start })
	gauge("go_goroutines", "Number of goroutines that currently exist.", func() float64 { return float64(runtime.NumGoroutine()) })
	gauge("go_memstats_heap_inuse_bytes", "Number of heap bytes that are in use.", heapBytes)
}

func cpuSeconds() float64 {
	var ru unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &ru) != nil {
		return 0
	}
	return float64(ru.Utime.Nano()+ru.Stime.Nano()) / 1e9
}

func openFDs() float64 {
	d, err := os.Open("/proc/self/fd")
	if err != nil {
		return 0
	}
	defer d.Close()
	names, _ := d.Readdirnames(-1)
	return float64(len(names))
}

func maxFDs() float64 {
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &l) != nil {
		return 0
	}
	return float64(l.Cur)
}

func residentBytes() float64 {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	f := strings.Fields(string(b))
	if len(f) < 2 {
		return 0
	}
	pages, _ := strconv.ParseFloat(f[1], 64)
	return pages * float64(os.Getpagesize())
}

func heapBytes() float64 {
	s := []rm.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	rm.Read(s)
	return float64(s[0].Value.Uint64())
}
