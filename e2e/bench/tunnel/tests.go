// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"time"
)

var measurements = []measurement{
	{name: "down", speed: true, mixed: true, run: func(e *env) (map[string]float64, error) { return bulk(e, "down", opSource) }},
	{name: "up", speed: true, mixed: true, run: func(e *env) (map[string]float64, error) { return bulk(e, "up", opSink) }},
	{name: "dial", speed: true, mixed: true, run: dialing},
	{name: "storm", run: storming},
	{name: "echo", speed: true, mixed: true, run: echoing},
	{name: "first", first: true, run: firstInLine},
	{name: "pace", speed: true, mixed: true, run: pacing},
	{name: "stall", mixed: true, ssh: true, run: clientStops},
	{name: "stall", mixed: true, ssh: true, run: clientSlow},
	{name: "stall", mixed: true, ssh: true, run: farEndStops},
	{name: "lag", mixed: true, ssh: true, run: clientLags},
	{name: "lag", mixed: true, ssh: true, run: lagAmongKeys},
	{name: "rss", ssh: true, run: memory},
	{name: "stalled", mixed: true, ssh: true, run: stalledMemory},
	{name: "lost", mixed: true, ssh: true, counts: true, run: losing},
	{name: "churn", mixed: true, ssh: true, counts: true, run: churning},
	{name: "frozen", mixed: true, counts: true, run: freezing},
	{name: "exit", mixed: true, counts: true, run: exiting},
}

// bulk measures throughput, and what it costs with 16 connections.
func bulk(e *env, name string, op byte) (map[string]float64, error) {
	out := map[string]float64{}
	for _, n := range []int{1, 16, 64} {
		before := e.used()
		rate, bytes, err := flow(e.dial, e.t.addr, n, op, e.o.dur)
		if err != nil {
			return out, err
		}
		out[fmt.Sprintf("%s MB/s, %d", name, n)] = rate
		if gb := float64(bytes) / 1e9; n == 16 && e.r != nil && gb > 0 {
			for who, s := range e.used() {
				out[name+" CPU s/GB "+who] = (s - before[who]) / gb
			}
		}
	}
	return out, nil
}

func dialing(e *env) (map[string]float64, error) {
	if _, _, err := dials(e.dial, e.t.addr, 50); err != nil {
		return nil, err
	}
	p50, p99, err := dials(e.dial, e.t.addr, 1000)
	if err != nil {
		return nil, err
	}
	out := map[string]float64{"dial ms p50": p50, "dial ms p99": p99}
	before := e.used()
	n := dialRate(e.dial, e.t.addr, 64, e.o.dur)
	out["dials/s, 64"] = float64(n) / e.o.dur.Seconds()
	for who, s := range e.used() {
		if n > 0 {
			out["dial CPU us "+who] = (s - before[who]) / float64(n) * 1e6
		}
	}
	return out, nil
}

// used is the processor time in seconds that each of the processes has used.
func (e *env) used() map[string]float64 {
	u := map[string]float64{"dialer": cpu(os.Getpid()), "target": cpu(e.t.cmd.Process.Pid)}
	if e.r != nil {
		s, a := e.r.cpu()
		u["server"] = s
		if len(e.r.agents) > 0 {
			u["agent"] = a
		}
	}
	return u
}

// echoing measures a connection alone, next to a load of another client and another
// destination, and next to one in this process and to the same destination.
func echoing(e *env) (map[string]float64, error) {
	out := map[string]float64{}
	c, err := open(e.dial, e.t.addr, opEcho)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	ts, err := echo(c, 20000, e.o.dur)
	if err != nil {
		return nil, err
	}
	out["echo us p50"] = percentile(ts, 50).Seconds() * 1e6
	out["echo us p99"] = percentile(ts, 99).Seconds() * 1e6
	l, err := startLoad(e.via, e.bulk.addr, 4)
	if err != nil {
		return out, err
	}
	settle()
	err = echoBesideLoad(c, e, "", out)
	l.stop()
	if err != nil {
		return out, err
	}
	var total atomic.Int64
	conns, err := openMany(e.dial, e.t.addr, 4, opSource, pumping(opSource, &total))
	if err != nil {
		return out, err
	}
	settle()
	err = echoBesideLoad(c, e, ", same process", out)
	closeAll(conns)
	return out, err
}

// settle lets the windows of a load grow.
func settle() { time.Sleep(300 * time.Millisecond) }

func echoBesideLoad(c net.Conn, e *env, which string, out map[string]float64) error {
	ts, err := echo(c, 20000, 2*e.o.dur)
	out["echo ms p50 next to 4"+which] = percentile(ts, 50).Seconds() * 1e3
	out["echo ms p99 next to 4"+which] = percentile(ts, 99).Seconds() * 1e3
	return err
}

func memory(e *env) (map[string]float64, error) {
	time.Sleep(time.Second)
	s, a := e.r.rss()
	out := map[string]float64{"RSS MB at 0": s + a}
	conns, err := openMany(e.dial, e.t.addr, e.o.idle, opEcho, nil)
	if err != nil {
		return out, err
	}
	time.Sleep(2 * time.Second)
	s, a = e.r.rss()
	key := fmt.Sprintf("RSS MB at %d idle", e.o.idle)
	out[key], out[key+" server"], out[key+" agent"] = s+a, s, a
	closeAll(conns)
	return out, nil
}

func stalledMemory(e *env) (map[string]float64, error) {
	time.Sleep(time.Second)
	s, a := e.r.rss()
	var total atomic.Int64
	more, err := openMany(e.dial, e.t.addr, 50, opStall, pumping(opSink, &total))
	if err != nil {
		return nil, err
	}
	conns, err := openMany(e.dial, e.t.addr, 50, opSource, nil) // these clients do not read
	if err != nil {
		return nil, err
	}
	time.Sleep(3 * time.Second)
	s1, a1 := e.r.rss()
	out := map[string]float64{"RSS growth MB, 100 stalled": s1 + a1 - s - a}
	go closeAll(append(conns, more...))
	return out, nil
}
