// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// pacing measures echoes at a fixed rate, like keystrokes and small requests, and
// the CPU time that each costs the processes that carry it: a process that polls
// before it sleeps answers sooner and uses more CPU.
func pacing(e *env) (map[string]float64, error) {
	out := map[string]float64{}
	c, err := open(e.dial, e.t.addr, opEcho)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	for _, pace := range []int{100, 1000} {
		if _, err := echoPaced(c, pace, e.o.dur/2); err != nil { // what came before has an end
			return out, err
		}
		before := e.carried()
		ts, err := echoPaced(c, pace, 2*e.o.dur)
		if err != nil {
			return out, err
		}
		out[fmt.Sprintf("echo us p50 at %d/s", pace)] = percentile(ts, 50).Seconds() * 1e6
		if used := e.carried() - before; used > 0 {
			out[fmt.Sprintf("echo CPU us at %d/s, server and agent", pace)] = used * 1e6 / float64(len(ts))
		}
	}
	return out, nil
}

// echoPaced sends as many echoes per second for the time, fewer where they take longer.
func echoPaced(c net.Conn, pace int, dur time.Duration) (ts []time.Duration, err error) {
	tick := time.NewTicker(time.Second / time.Duration(pace))
	defer tick.Stop()
	for end := time.Now().Add(dur); time.Now().Before(end); <-tick.C {
		one, err := echo(c, 1, time.Second)
		if err != nil {
			return ts, err
		}
		ts = append(ts, one...)
	}
	return ts, nil
}

// carried is the processor time in seconds of server and agent, to the nanosecond; 0
// without them.
func (e *env) carried() float64 {
	if e.r == nil {
		return 0
	}
	used := tree(e.r.serverPID(), ran)
	if len(e.r.agents) > 0 {
		used += tree(e.r.agentPID(), ran)
	}
	return used
}

// ran is the time in seconds for which the threads of a process have run.
func ran(pid int) (sum float64) {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	for _, t := range threads {
		b, _ := os.ReadFile(t)
		first, _, _ := strings.Cut(string(b), " ")
		ns, _ := strconv.ParseFloat(first, 64)
		sum += ns / 1e9
	}
	return sum
}
