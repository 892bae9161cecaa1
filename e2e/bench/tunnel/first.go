// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// firstInLine measures echoes with a server and an agent that never wait for a
// processor that a process of normal priority uses. The result contains only their
// own work and the waits of client and destination.
func firstInLine(e *env) (map[string]float64, error) {
	c, err := open(e.dial, e.t.addr, opEcho)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	l, err := startLoad(e.via, e.bulk.addr, 4)
	if err != nil {
		return nil, err
	}
	defer l.stop()
	settle()
	out := map[string]float64{}
	return out, echoBesideLoad(c, e, ", real-time", out)
}

// runFirst is the process "bench-tunnel first <program> <arguments>": it becomes that
// program, with real-time priority.
func runFirst(command []string) error {
	runtime.LockOSThread() // the priority is the thread's, and exec keeps it
	attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_RR, Priority: 1}
	if err := unix.SchedSetAttr(0, &attr, 0); err != nil {
		return fmt.Errorf("real-time priority, which takes root or CAP_SYS_NICE: %w", err)
	}
	return fmt.Errorf("%s: %w", command[0], unix.Exec(command[0], command, os.Environ()))
}
