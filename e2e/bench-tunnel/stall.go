package main

import (
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"
)

// stalling measures a healthy connection while another client stops reading,
// one reads slowly, and one far end stops reading.
func stalling(e *env) (map[string]float64, error) {
	out := map[string]float64{}
	kinds := []struct {
		name string
		op   byte
		use  func(net.Conn)
	}{
		{"client stops", opSource, func(net.Conn) {}},
		{"client slow", opSource, func(c net.Conn) {
			b := make([]byte, 8<<10)
			for {
				if _, err := c.Read(b); err != nil {
					return
				}
				time.Sleep(100 * time.Millisecond)
			}
		}},
		{"far end stops", opStall, func(c net.Conn) {
			b := make([]byte, 32<<10)
			for {
				if _, err := c.Write(b); err != nil {
					return
				}
			}
		}},
	}
	var errs []error
	for _, k := range kinds {
		if err := stallBeside(e, k.name, k.op, k.use, out); err != nil {
			// The one before has broken the pair for good.
			errs = append(errs, fmt.Errorf("%s: no result: %w", k.name, err))
		}
	}
	return out, errors.Join(errs...)
}

// stallRounds is how often a healthy connection is measured alone and beside one
// that stalls. What the machine does in the meantime is found in both sums; with
// a single round, it stood in one of them.
const stallRounds = 4

// stallBeside measures a healthy connection before and while use treats another
// one badly.
func stallBeside(e *env, name string, op byte, use func(net.Conn), out map[string]float64) error {
	ec, err := open(e.dial, e.t.addr, opEcho)
	if err != nil {
		return err
	}
	conns := []net.Conn{ec}
	defer func() { go closeAll(conns) }()
	var total atomic.Int64
	hs, err := openMany(e.dial, e.t.addr, 1, opSource, pumping(opSource, &total))
	conns = append(conns, hs...)
	if err != nil {
		return err
	}
	time.Sleep(300 * time.Millisecond)
	dur := e.o.dur
	ts0, _ := echo(ec, 1<<30, 2*dur)
	var before, after float64
	for round := range stallRounds {
		before += rateOf(&total, dur)
		s, err := open(e.dial, e.t.addr, op)
		if err != nil {
			return err
		}
		conns = append(conns, s)
		go use(s)
		time.Sleep(500 * time.Millisecond)
		kept := rateOf(&total, dur)
		after += kept
		if kept == 0 {
			break // for good, as a rule
		}
		if round < stallRounds-1 {
			s.Close()
			time.Sleep(500 * time.Millisecond)
		}
	}
	out[name+": rate kept %"] = 100 * after / before
	out[name+": echo p99 x"] = echoBeside(ec, ts0, 2*dur)
	out[name+": failed dials of 10"] = float64(failedDials(e, 10, 3*time.Second))
	go closeAll(conns)
	conns = nil
	time.Sleep(time.Second)
	return nil
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
