// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"net"
	"sort"
	"sync"
	"sync/atomic"
	"time"
)

// open dials the target and sends it the byte that says what to do.
func open(d dialer, addr string, op byte) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	c, err := d(ctx, addr)
	if err != nil {
		return nil, err
	}
	if _, err := c.Write([]byte{op}); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// openMany dials n times before it starts any traffic, because upstream's dials
// fail while there are connections that are not read.
func openMany(d dialer, addr string, n int, op byte, use func(net.Conn)) ([]net.Conn, error) {
	var conns []net.Conn
	for range n {
		c, err := d(context.Background(), addr)
		if err != nil {
			return conns, err
		}
		conns = append(conns, c)
	}
	for _, c := range conns {
		if _, err := c.Write([]byte{op}); err != nil {
			return conns, err
		}
		if use != nil {
			go use(c)
		}
	}
	return conns, nil
}

// closeAll closes connections side by side: a close through upstream may wait.
func closeAll(conns []net.Conn) {
	var wg sync.WaitGroup
	for _, c := range conns {
		wg.Go(func() { c.Close() })
	}
	wg.Wait()
}

// flow runs n bulk transfers for the time and returns MB/s and the bytes.
func flow(d dialer, addr string, n int, op byte, dur time.Duration) (float64, int64, error) {
	var total atomic.Int64
	conns, err := openMany(d, addr, n, op, pumping(op, &total))
	if err != nil {
		closeAll(conns)
		return 0, 0, err
	}
	time.Sleep(dur / 4) // let windows grow
	from, start := total.Load(), time.Now()
	time.Sleep(dur)
	bytes, took := total.Load()-from, time.Since(start)
	all := total.Load()
	closeAll(conns)
	return float64(bytes) / took.Seconds() / 1e6, all, nil
}

// pumping is pump as openMany wants it.
func pumping(op byte, total *atomic.Int64) func(net.Conn) {
	return func(c net.Conn) { pump(c, op, total) }
}

func pump(c net.Conn, op byte, total *atomic.Int64) {
	buf := make([]byte, 32<<10) // what io.Copy uses
	for {
		var n int
		var err error
		if op == opSource {
			n, err = c.Read(buf)
		} else {
			n, err = c.Write(buf)
		}
		total.Add(int64(n))
		if err != nil {
			return
		}
	}
}

// dialOnce dials, sends a byte and reads it back.
func dialOnce(d dialer, addr string) error {
	c, err := open(d, addr, opEcho)
	if err != nil {
		return err
	}
	defer func() { go c.Close() }()
	b := []byte{1}
	if _, err := c.Write(b); err != nil {
		return err
	}
	_, err = io.ReadFull(c, b)
	return err
}

func dials(d dialer, addr string, n int) (p50, p99 float64, err error) {
	var ts []time.Duration
	for range n {
		start := time.Now()
		if err := dialOnce(d, addr); err != nil {
			return 0, 0, err
		}
		ts = append(ts, time.Since(start))
	}
	return percentile(ts, 50).Seconds() * 1e3, percentile(ts, 99).Seconds() * 1e3, nil
}

// dialRate dials with so many workers for the time and returns how many dials there
// were.
func dialRate(d dialer, addr string, workers int, dur time.Duration) int64 {
	var n atomic.Int64
	var wg sync.WaitGroup
	end := time.Now().Add(dur)
	for range workers {
		wg.Go(func() {
			for time.Now().Before(end) {
				c, err := open(d, addr, opEcho)
				if err != nil {
					time.Sleep(time.Millisecond)
					continue
				}
				b := []byte{1}
				_, _ = c.Write(b)
				if _, err := io.ReadFull(c, b); err == nil {
					n.Add(1)
				}
				c.Close()
			}
		})
	}
	wg.Wait()
	return n.Load()
}

// echo sends 64 bytes and waits for them, n times or for the time.
func echo(c net.Conn, n int, dur time.Duration) (ts []time.Duration, err error) {
	b := make([]byte, 64)
	end := time.Now().Add(dur)
	for i := 0; i < n && time.Now().Before(end); i++ {
		start := time.Now()
		if _, err := c.Write(b); err != nil {
			return ts, err
		}
		if _, err := io.ReadFull(c, b); err != nil {
			return ts, err
		}
		ts = append(ts, time.Since(start))
	}
	return ts, nil
}

func percentile(ts []time.Duration, p int) time.Duration {
	if len(ts) == 0 {
		return 0
	}
	s := append([]time.Duration(nil), ts...)
	sort.Slice(s, func(i, j int) bool { return s[i] < s[j] })
	return s[min(len(s)-1, len(s)*p/100)]
}

func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	s := append([]float64(nil), v...)
	sort.Float64s(s)
	return s[len(s)/2]
}
