// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net"
	"sync/atomic"
	"time"
)

// clientStops, clientSlow and farEndStops measure a healthy connection while another
// client stops reading, one reads slowly, and one far end stops reading. Each needs a
// pair of its own: some are broken for good by one of them.
func clientStops(e *env) (map[string]float64, error) {
	return stallBeside(e, "client stops", opSource, func(net.Conn) {})
}

func clientSlow(e *env) (map[string]float64, error) {
	return stallBeside(e, "client slow", opSource, func(c net.Conn) {
		b := make([]byte, 8<<10)
		for {
			if _, err := c.Read(b); err != nil {
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
	})
}

func farEndStops(e *env) (map[string]float64, error) {
	return stallBeside(e, "far end stops", opStall, func(c net.Conn) {
		b := make([]byte, 32<<10)
		for {
			if _, err := c.Write(b); err != nil {
				return
			}
		}
	})
}

// stallBeside measures a healthy connection before and while use treats another
// one badly.
func stallBeside(e *env, name string, op byte, use func(net.Conn)) (map[string]float64, error) {
	ec, err := open(e.dial, e.t.addr, opEcho)
	if err != nil {
		return nil, err
	}
	conns := []net.Conn{ec}
	defer func() {
		go closeAll(conns)
		time.Sleep(time.Second)
	}()
	var total atomic.Int64
	hs, err := openMany(e.dial, e.t.addr, 1, opSource, pumping(opSource, &total))
	conns = append(conns, hs...)
	if err != nil {
		return nil, err
	}
	time.Sleep(300 * time.Millisecond)
	dur := 2 * e.o.dur // shorter ones tell more of the machine's moments than of the tunnel
	ts0, _ := echo(ec, 1<<30, dur)
	kept, undo, err := keptRate(e, &total, op, use)
	if err != nil {
		return nil, err
	}
	defer func() { go undo() }()
	return map[string]float64{
		name + ": rate kept %":        kept,
		name + ": echo p99 x":         echoBeside(ec, ts0, dur),
		name + ": failed dials of 10": float64(failedDials(e, 10, 3*time.Second)),
	}, nil
}

// stallRounds is how often a healthy connection is measured alone and next to one
// that stalls. Other load on the machine then affects both sums; with a single
// round it would affect only one of them.
const stallRounds = 4

// keptRate is what a connection carries next to one that use treats badly, in %
// of what it carries alone. The last of those stays until undo is called.
func keptRate(e *env, total *atomic.Int64, op byte, use func(net.Conn)) (kept float64, undo func(), err error) {
	var before, beside float64
	for round := 1; ; round++ {
		alone := rateOf(total, e.o.dur)
		next, err := stallOne(e, op, use)
		if err != nil && round > 1 { // the one before has broken the pair for good, which the dials that follow show
			return 100 * beside / before, undo, nil
		}
		if err != nil {
			return 0, nil, err
		}
		before, undo = before+alone, next
		time.Sleep(500 * time.Millisecond)
		rate := rateOf(total, e.o.dur)
		beside += rate
		switch {
		case rate == 0: // for good, as a rule
			return 0, undo, nil
		case round == stallRounds:
			return 100 * beside / before, undo, nil
		}
		go undo()
		time.Sleep(500 * time.Millisecond)
	}
}

// stallOne opens a connection that use treats badly, and returns what ends it at once.
func stallOne(e *env, op byte, use func(net.Conn)) (undo func(), err error) {
	life, cut := context.WithCancel(context.Background())
	s, err := open(e.via.dialerUntil(life), e.t.addr, op)
	if err != nil {
		cut()
		return nil, err
	}
	go use(s)
	return func() { cut(); _ = s.Close() }, nil
}

// echoBeside tells by what factor the echo times have grown; 99 if nothing comes
// back.
func echoBeside(c net.Conn, before []time.Duration, dur time.Duration) float64 {
	done := make(chan []time.Duration, 1)
	go func() { ts, _ := echo(c, 1<<30, dur); done <- ts }()
	select {
	case ts := <-done:
		if b := percentile(before, 99).Seconds(); b > 0 {
			return percentile(ts, 99).Seconds() / b
		}
	case <-time.After(5 * dur):
	}
	return 99
}

func rateOf(total *atomic.Int64, d time.Duration) float64 {
	from := total.Load()
	time.Sleep(d)
	return float64(total.Load()-from) / d.Seconds()
}

func failedDials(e *env, n int, limit time.Duration) int {
	res := make(chan error, n)
	for range n {
		go func() { res <- dialOnce(e.dial, e.t.addr) }()
	}
	ok := 0
	timeout := time.After(limit)
	for range n {
		select {
		case err := <-res:
			if err == nil {
				ok++
			}
		case <-timeout:
			return n - ok
		}
	}
	return n - ok
}
