// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net"
	"slices"
	"sync/atomic"
	"time"
)

// lagRate is the rate, in bytes per second, of a client that reads more slowly than its
// source sends. lagTime is how long it is measured together with keystrokes.
const (
	lagRate = 12e6
	lagTime = 4 * time.Second
)

// clientLags measures a healthy connection while another client reads at lagRate.
func clientLags(e *env) (map[string]float64, error) {
	return stallBeside(e, "client at 12 MB/s", opSource, func(c net.Conn) { readAt(c, lagRate, nil) })
}

// lagAmongKeys measures a client that reads at lagRate, together with keystrokes: 64
// bytes and an answer, ten times a second. No connection carries more than that.
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

// readAt reads at most perSecond bytes per second until the connection ends, and
// counts them.
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
