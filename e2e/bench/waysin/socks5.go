// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/proxy"
)

// socks5Processes are what this program runs as in processes of their own, so that their
// work does not disturb the one that measures. Each prints its address.
var socks5Processes = map[string]func() error{"socks5-target": serveTarget, "socks5-proxy": serveProxy}

// way is one of those that are compared.
type way struct {
	name   string
	dialer proxy.Dialer
	got    map[string][]float64
}

func (w *way) open(target string, op byte) (net.Conn, error) {
	nc, err := w.dialer.Dial("tcp", target)
	if err != nil {
		return nil, err
	}
	b := []byte{op}
	if _, err = nc.Write(b); err == nil {
		_, err = io.ReadFull(nc, b)
	}
	if err != nil {
		_ = nc.Close()
		return nil, err
	}
	return nc, nil
}

// download returns the rate of n connections together in MB/s.
func (w *way) download(target string, n int, d time.Duration) (float64, error) {
	var total atomic.Int64
	var wg sync.WaitGroup
	conns := make([]net.Conn, 0, n)
	defer func() {
		for _, nc := range conns {
			_ = nc.Close()
		}
		wg.Wait()
	}()
	for range n {
		nc, err := w.open(target, 'd')
		if err != nil {
			return 0, err
		}
		conns = append(conns, nc)
		wg.Go(func() {
			b := make([]byte, 256<<10)
			for {
				k, err := nc.Read(b)
				total.Add(int64(k))
				if err != nil {
					return
				}
			}
		})
	}
	time.Sleep(d / 4) // until the windows have grown
	before, start := total.Load(), time.Now()
	time.Sleep(d)
	return float64(total.Load()-before) / 1e6 / time.Since(start).Seconds(), nil
}

// dialTime returns the median time of a dial and one byte there and back in ms.
func (w *way) dialTime(target string, n int) (float64, error) {
	var all []float64
	for range n {
		start := time.Now()
		nc, err := w.open(target, 'e')
		if err != nil {
			return 0, err
		}
		all = append(all, float64(time.Since(start))/1e6)
		_ = nc.Close()
	}
	return middle(all), nil
}

// dialRate returns dials per second of 16 workers.
func (w *way) dialRate(target string, d time.Duration) (float64, error) {
	var done atomic.Int64
	var wg sync.WaitGroup
	errs := make(chan error, 16)
	start := time.Now()
	for range 16 {
		wg.Go(func() {
			for time.Since(start) < d {
				nc, err := w.open(target, 'e')
				if err != nil {
					errs <- err
					return
				}
				_ = nc.Close()
				done.Add(1)
			}
		})
	}
	wg.Wait()
	select {
	case err := <-errs:
		return 0, err
	default:
		return float64(done.Load()) / time.Since(start).Seconds(), nil
	}
}

// echo returns the median time of 64 bytes there and back in ms.
func (w *way) echo(target string, n int) (float64, error) {
	nc, err := w.open(target, 'e')
	if err != nil {
		return 0, err
	}
	defer nc.Close()
	b := make([]byte, 64)
	var all []float64
	for range n {
		start := time.Now()
		if _, err := nc.Write(b); err != nil {
			return 0, err
		}
		if _, err := io.ReadFull(nc, b); err != nil {
			return 0, err
		}
		all = append(all, float64(time.Since(start))/1e6)
	}
	return middle(all), nil
}

func middle(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}

// benchSOCKS5 measures the SOCKS5 listener, with a password and without a tunnel behind it,
// beside "ssh -D" to an sshd on loopback, in turns, and prints medians.
func benchSOCKS5(o options) error {
	ways, target, stop, err := startWays(o)
	if err != nil {
		return err
	}
	defer stop()
	return compare(ways, target, o.reps, o.duration)
}

// startWays starts what is compared, and the target of their connections.
func startWays(o options) (ways []*way, target string, stop func(), err error) {
	var stops []func()
	stop = func() {
		for _, f := range stops {
			f()
		}
	}
	defer func() {
		if err != nil {
			stop()
		}
	}()
	start := func(f func() (string, func(), error)) (addr string) {
		if err == nil {
			var end func()
			if addr, end, err = f(); err == nil {
				stops = append(stops, end)
			}
		}
		return addr
	}
	target = start(func() (string, func(), error) { return process("socks5-target") })
	ours := start(func() (string, func(), error) { return process("socks5-proxy") })
	theirs := start(func() (string, func(), error) { return sshProxy(o.sshd) })
	if err != nil {
		return nil, "", nil, err
	}
	ways = []*way{{name: "fairlead"}, {name: "ssh -D"}, {name: "direct", dialer: &net.Dialer{}}}
	login := &proxy.Auth{User: benchLogin.Name, Password: benchLogin.Password}
	if ways[0].dialer, err = proxy.SOCKS5("tcp", ours, login, proxy.Direct); err == nil {
		ways[1].dialer, err = proxy.SOCKS5("tcp", theirs, nil, proxy.Direct)
	}
	return ways, target, stop, err
}

func compare(ways []*way, target string, reps int, d time.Duration) error {
	measurements := []struct {
		name string
		f    func(*way) (float64, error)
	}{
		{"download, 1 connection, MB/s", func(w *way) (float64, error) { return w.download(target, 1, d) }},
		{"download, 16 connections, MB/s", func(w *way) (float64, error) { return w.download(target, 16, d) }},
		{"dial p50, ms", func(w *way) (float64, error) { return w.dialTime(target, 200) }},
		{"dials/s, 16 workers", func(w *way) (float64, error) { return w.dialRate(target, d) }},
		{"echo of 64 bytes p50, ms", func(w *way) (float64, error) { return w.echo(target, 1000) }},
	}
	fmt.Println("| measurement | fairlead | ssh -D | direct | fairlead / ssh -D |\n| --- | --- | --- | --- | --- |")
	for _, m := range measurements {
		for range reps {
			for _, w := range ways {
				v, err := m.f(w)
				if err != nil {
					return fmt.Errorf("%s: %s: %w", w.name, m.name, err)
				}
				if w.got == nil {
					w.got = map[string][]float64{}
				}
				w.got[m.name] = append(w.got[m.name], v)
			}
		}
		a, b, c := middle(ways[0].got[m.name]), middle(ways[1].got[m.name]), middle(ways[2].got[m.name])
		fmt.Printf("| %s | %.3g | %.3g | %.3g | %.2f |\n", m.name, a, b, c, a/b)
	}
	return nil
}
