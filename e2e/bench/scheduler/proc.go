// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// tick is the unit in which Linux counts CPU time for processes and machine, in milliseconds.
const tick = 10

// usage is CPU time in milliseconds, since each process and the machine started.
type usage struct {
	at                                time.Time
	scheduler, apiServer, etcd, bench float64
	machine                           float64
}

func (cp *controlPlane) usage(scheduler *program) usage {
	return usage{
		at: time.Now(), scheduler: cpuMillis(scheduler.cmd.Process.Pid), apiServer: cpuMillis(cp.apiServer.cmd.Process.Pid),
		etcd: cpuMillis(cp.etcd.cmd.Process.Pid), bench: cpuMillis(os.Getpid()), machine: machineMillis(),
	}
}

// server is the CPU time that kube-apiserver and etcd have used.
func (u usage) server() float64 { return u.apiServer + u.etcd }

// others is the share of all processors used by processes that are not part of the benchmark.
func (u usage) others(since usage) float64 {
	own := func(u usage) float64 { return u.scheduler + u.apiServer + u.etcd + u.bench }
	all := u.at.Sub(since.at).Seconds() * 1000 * float64(runtime.NumCPU())
	if all <= 0 {
		return 0
	}
	return max(0, (u.machine-since.machine)-(own(u)-own(since))) / all
}

// cpuMillis is the CPU time that a process has used, in user and kernel mode.
func cpuMillis(pid int) float64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The name, in parentheses, may hold blanks; utime and stime are the 12th and 13th field after it.
	return sum(strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:])), 11, 12) * tick
}

// machineMillis is the CPU time that all processes and the kernel have used, and what the hypervisor took.
func machineMillis() float64 {
	data, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	line, _, _ := strings.Cut(string(data), "\n")
	// cpu user nice system idle iowait irq softirq steal
	return sum(strings.Fields(line), 1, 2, 3, 6, 7, 8) * tick
}

func sum(fields []string, which ...int) float64 {
	var total float64
	for _, i := range which {
		if i < len(fields) {
			value, _ := strconv.ParseFloat(fields[i], 64)
			total += value
		}
	}
	return total
}

func peakMiB(pid int) (float64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "VmHWM:" {
			kib, err := strconv.ParseFloat(fields[1], 64)
			return kib / 1024, err
		}
	}
	return 0, fmt.Errorf("no VmHWM of process %d", pid)
}

// machine identifies the machine of a result.
func machine() string {
	model := runtime.GOARCH
	if data, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(data)) {
			if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	return fmt.Sprintf("%d x %s", runtime.NumCPU(), model)
}

// load is the load average of the last minute.
func load() float64 {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	return sum(strings.Fields(string(data)), 0)
}
