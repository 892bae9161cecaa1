package main

import (
	"net"
	"slices"
	"sync/atomic"
	"time"
)

// lagRate is how fast a client reads that is slower than its source, in bytes per second,
// and lagTime how long it is measured beside keystrokes.
const (
	lagRate = 12e6
	lagTime = 4 * time.Second
)

// clientLags measures a healthy connection while another client takes lagRate.
func clientLags(e *env) (map[string]float64, error) {
	return stallBeside(e, "client at 12 MB/s", opSource, func(c net.Conn) { readAt(c, lagRate, nil) })
}

// lagAmongKeys measures a client that takes lagRate, and keystrokes beside it: 64 bytes
// and an answer, ten times a second. No connection has more to do.
func lagAmongKeys(e *env) (map[string]float64, error) {
	keys, err := open(e.dial, e.t.addr, opEcho)
	if err != nil {
		return nil, err
	}
	defer keys.Close()
	c, err := open(e.dial, e.t.addr, opSource)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	var got atomic.Int64
	go readAt(c, lagRate, &got)
	var longest []time.Duration
	start := time.Now()
	for time.Since(start) < lagTime {
		ts, err := echo(keys, 1, lagTime)
		if err != nil {
			return nil, err
		}
		longest = append(longest, ts...)
		time.Sleep(100 * time.Millisecond)
	}
	return map[string]float64{
		"client at 12 MB/s alone: of its rate %":        100 * float64(got.Load()) / time.Since(start).Seconds() / lagRate,
		"client at 12 MB/s alone: longest keystroke ms": slices.Max(longest).Seconds() * 1e3,
	}, nil
}

// readAt takes at most so many bytes per second until the connection ends, and counts them.
func readAt(c net.Conn, perSecond float64, got *atomic.Int64) {
	b := make([]byte, 64<<10)
	n, start := 0, time.Now()
	for {
		k, err := c.Read(b)
		if err != nil {
			return
		}
		if n += k; got != nil {
			got.Add(int64(k))
		}
		time.Sleep(time.Until(start.Add(time.Duration(float64(n) / perSecond * float64(time.Second)))))
	}
}
