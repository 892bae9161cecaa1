package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"
)

var measurements = []measurement{
	{name: "down", speed: true, mixed: true, run: func(e *env) (map[string]float64, error) { return bulk(e, "down", opSource) }},
	{name: "up", speed: true, mixed: true, run: func(e *env) (map[string]float64, error) { return bulk(e, "up", opSink) }},
	{name: "dial", speed: true, mixed: true, run: dialing},
	{name: "echo", speed: true, mixed: true, run: echoing},
	{name: "stall", run: stalling},
	{name: "rss", run: memory},
	{name: "stalled", run: stalledMemory},
	{name: "lost", mixed: true, run: losing},
	{name: "churn", run: churning},
	{name: "frozen", run: freezing},
	{name: "exit", run: exiting},
}

// bulk measures throughput, and what it costs with 16 connections.
func bulk(e *env, name string, op byte) (map[string]float64, error) {
	out := map[string]float64{}
	for _, n := range []int{1, 16, 64} {
		var s0, a0 float64
		d0 := cpu(os.Getpid())
		if e.r != nil {
			s0, a0 = e.r.cpu()
		}
		rate, bytes, err := flow(e.dial, e.t.addr, n, op, e.o.dur)
		if err != nil {
			return out, err
		}
		out[fmt.Sprintf("%s MB/s, %d", name, n)] = rate
		if gb := float64(bytes) / 1e9; n == 16 && e.r != nil && gb > 0 {
			s1, a1 := e.r.cpu()
			out[name+" CPU s/GB server"] = (s1 - s0) / gb
			if len(e.r.agents) > 0 {
				out[name+" CPU s/GB agent"] = (a1 - a0) / gb
			}
			out[name+" CPU s/GB dialler"] = (cpu(os.Getpid()) - d0) / gb
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
	return map[string]float64{"dial ms p50": p50, "dial ms p99": p99, "dials/s, 64": dialRate(e.dial, e.t.addr, 64, e.o.dur)}, nil
}

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
	var total atomic.Int64
	conns, err := openMany(e.dial, e.t.addr, 4, opSource, func(c net.Conn) { pump(c, opSource, &total) })
	if err != nil {
		return out, err
	}
	time.Sleep(300 * time.Millisecond)
	ts, err = echo(c, 20000, 2*e.o.dur)
	closeAll(conns)
	out["echo ms p50 beside 4"] = percentile(ts, 50).Seconds() * 1e3
	out["echo ms p99 beside 4"] = percentile(ts, 99).Seconds() * 1e3
	return out, err
}

func memory(e *env) (map[string]float64, error) {
	time.Sleep(time.Second)
	out := map[string]float64{"RSS MB at 0": rss(e.r.serverPID()) + rss(e.r.agentPID())}
	conns, err := openMany(e.dial, e.t.addr, e.o.idle, opEcho, nil)
	if err != nil {
		return out, err
	}
	time.Sleep(2 * time.Second)
	s, a := rss(e.r.serverPID()), rss(e.r.agentPID())
	key := fmt.Sprintf("RSS MB at %d idle", e.o.idle)
	out[key], out[key+" server"], out[key+" agent"] = s+a, s, a
	closeAll(conns)
	return out, nil
}

func stalledMemory(e *env) (map[string]float64, error) {
	time.Sleep(time.Second)
	s, a := rss(e.r.serverPID()), rss(e.r.agentPID())
	var total atomic.Int64
	more, err := openMany(e.dial, e.t.addr, 50, opStall, func(c net.Conn) { pump(c, opSink, &total) })
	if err != nil {
		return nil, err
	}
	conns, err := openMany(e.dial, e.t.addr, 50, opSource, nil) // these clients do not read
	if err != nil {
		return nil, err
	}
	time.Sleep(3 * time.Second)
	out := map[string]float64{"RSS growth MB, 100 stalled": rss(e.r.serverPID()) + rss(e.r.agentPID()) - s - a}
	go closeAll(append(conns, more...))
	return out, nil
}

// losing writes and closes at once, and compares what arrived.
func losing(e *env) (map[string]float64, error) {
	col := e.t.counts
	_ = col.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
	_, _ = io.Copy(io.Discard, col) // late ones of a pair measured before
	const n, size = 50, 1 << 20
	data := make([]byte, size)
	for range n {
		c, err := e.dial(context.Background(), e.t.addr)
		if err != nil {
			return nil, err
		}
		if _, err := c.Write([]byte{opCount}); err != nil {
			return nil, err
		}
		if _, err := c.Write(data); err != nil {
			return nil, err
		}
		c.Close()
	}
	got, whole := collect(col, n, size)
	return map[string]float64{"lost on write-then-close %": 100 * (1 - float64(got)/(n*size)), "transfers not whole of 50": float64(n - whole)}, nil
}

// collect reads the numbers of bytes of n connections, and how many of them are
// size. What has not come in 10 s is lost.
func collect(col net.Conn, n int, size int64) (got int64, whole int) {
	_ = col.SetReadDeadline(time.Now().Add(10 * time.Second))
	for range n {
		var v int64
		if binary.Read(col, binary.BigEndian, &v) != nil {
			break
		}
		got += v
		if v == size {
			whole++
		}
	}
	return got, whole
}

// churning opens and closes in all the ways that clients do, and counts what is
// left.
func churning(e *env) (map[string]float64, error) {
	time.Sleep(500 * time.Millisecond)
	s0, a0 := fds(e.r.serverPID()), fds(e.r.agentPID())
	g0 := gauge(e.r.ports.health, "go_goroutines")
	dialRate(e.dial, e.t.addr, 32, e.o.dur)
	for range 300 { // clients that go away during the dial
		c, err := dialUnix(context.Background(), e.r.socket)
		if err != nil {
			return nil, err
		}
		_, _ = fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", e.t.addr)
		c.Close()
	}
	time.Sleep(5 * time.Second)
	left := fds(e.r.serverPID()) - s0 + fds(e.r.agentPID()) - a0
	return map[string]float64{"fds left after churn": float64(left), "goroutines left after churn": gauge(e.r.ports.health, "go_goroutines") - g0}, nil
}

// freezing stops one of two agents and counts the dials that fail afterwards.
func freezing(e *env) (map[string]float64, error) {
	_ = e.r.agents[0].cmd.Process.Signal(syscall.SIGSTOP)
	first := failedDials(e, 20, 8*time.Second)
	time.Sleep(3 * time.Second)
	later := failedDials(e, 40, 5*time.Second)
	_ = e.r.agents[0].cmd.Process.Signal(syscall.SIGCONT)
	return map[string]float64{"failed of 20 right after freeze": float64(first), "failed of 40, 10 s after freeze": float64(later)}, nil
}

// exiting measures the time from SIGTERM to exit.
func exiting(e *env) (map[string]float64, error) {
	wait := func(p *proc, limit time.Duration) float64 {
		start := time.Now()
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-p.done:
			return time.Since(start).Seconds()
		case <-time.After(limit):
			return limit.Seconds()
		}
	}
	if err := dialOnce(e.dial, e.t.addr); err != nil {
		return nil, err
	}
	time.Sleep(500 * time.Millisecond)
	out := map[string]float64{"exit s, idle agent": wait(e.r.agents[0], 10*time.Second)}
	e.r.agents[0].kill()
	if err := e.r.addAgent(9); err != nil {
		return out, err
	}
	if err := e.r.waitAgents(1); err != nil {
		return out, err
	}
	c, err := open(e.dial, e.t.addr, opEcho)
	if err != nil {
		return out, err
	}
	defer c.Close()
	out["exit s, server with a connection, no grace"] = wait(e.r.server, 10*time.Second)
	return out, nil
}
