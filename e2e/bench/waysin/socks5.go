// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/proxy"

	"github.com/fairlead-dev/fairlead/e2e/bench/internal/goals"
)

// socks5Processes are what this program runs as in processes of their own, so that their
// work does not disturb the one that measures. Each prints its address.
var socks5Processes = map[string]func() error{"socks5-target": serveTarget, "socks5-proxy": serveProxy, "relay": serveRelay}

// way is one of those that are compared.
type way struct{ dialer proxy.Dialer }

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
	return goals.Quantile(all, 0.5), nil
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
	return goals.Quantile(all, 0.5), nil
}

// benchSOCKS5 measures both protocols of the listener, with a password and without a tunnel behind it,
// next to "ssh -D" to an sshd on loopback, in turns, and prints medians.
func benchSOCKS5(o options) error {
	var c closers
	defer c.close()
	ways, target, err := c.startWays(o)
	if err != nil {
		return err
	}
	names := []string{"SOCKS5", "HTTP CONNECT", "ssh -D", "no proxy"}
	return compare(o, []*way{ways.socks5, ways.connect, ways.ssh, {dialer: &net.Dialer{}}}, names, target)
}

// closers end what was started.
type closers []func()

func (c *closers) close() {
	for _, f := range slices.Backward(*c) {
		f()
	}
}

// keep takes the end of what was started; the first error stays.
func (c *closers) keep(addr string, end func(), err error) func(*error) string {
	if end != nil && err == nil {
		*c = append(*c, end)
	}
	return func(first *error) string {
		if *first == nil {
			*first = err
		}
		return addr
	}
}

// started are the ways of which both listeners are measured.
type started struct {
	socks5, connect, ssh *way
	sshd                 *sshServer
}

// startWays starts what is compared, and the target of their connections.
func (c *closers) startWays(o options) (w started, target string, err error) {
	target = c.keep(process("socks5-target"))(&err)
	ours := c.keep(process("socks5-proxy", "network"))(&err)
	if err != nil {
		return w, "", err
	}
	if w.sshd, err = startSSHD(o.sshd); err != nil {
		return w, "", err
	}
	*c = append(*c, w.sshd.stop)
	theirs, err := w.sshd.dynamic()
	if err != nil {
		return w, "", err
	}
	w.socks5, w.connect, w.ssh = &way{}, &way{dialer: connectDialer{ours}}, &way{}
	if w.socks5.dialer, err = socks5Dialer(ours); err == nil {
		w.ssh.dialer, err = proxy.SOCKS5("tcp", theirs, nil, proxy.Direct)
	}
	return w, target, err
}

func socks5Dialer(addr string) (proxy.Dialer, error) {
	return proxy.SOCKS5("tcp", addr, &proxy.Auth{User: benchLogin.Name, Password: benchLogin.Password}, proxy.Direct)
}

// connectDialer is a client of HTTP CONNECT.
type connectDialer struct{ proxy string }

func (d connectDialer) Dial(network, target string) (net.Conn, error) {
	var nd net.Dialer
	nc, err := nd.DialContext(context.Background(), network, d.proxy)
	if err != nil {
		return nil, err
	}
	login := base64.StdEncoding.EncodeToString([]byte(benchLogin.Name + ":" + benchLogin.Password))
	_, err = fmt.Fprintf(nc, "CONNECT %s HTTP/1.1\r\nHost: %s\r\nProxy-Authorization: Basic %s\r\n\r\n", target, target, login)
	if err == nil {
		var resp *http.Response
		in := bufio.NewReader(nc) // the target sends nothing before it is asked, so this keeps no bytes back
		if resp, err = http.ReadResponse(in, &http.Request{Method: http.MethodConnect}); err == nil {
			_ = resp.Body.Close() // a tunnel has none
			if resp.StatusCode != http.StatusOK {
				err = fmt.Errorf("CONNECT %s: %s", target, resp.Status)
			}
		}
	}
	if err != nil {
		_ = nc.Close()
		return nil, err
	}
	return nc, nil
}

// measurements are the rows, each with its goal for the first way's value by that of ssh -D.
func measurements(target string, d time.Duration) []measurement {
	return []measurement{
		{"download, 1 connection, MB/s", goals.Goal{AtLeast: 1}, func(w *way) (float64, error) { return w.download(target, 1, d) }},
		{"download, 16 connections, MB/s", goals.Goal{AtLeast: 1}, func(w *way) (float64, error) { return w.download(target, 16, d) }},
		{"dial p50, ms", goals.Goal{AtMost: 1.2}, func(w *way) (float64, error) { return w.dialTime(target, 200) }},
		{"dials/s, 16 workers", goals.Goal{AtLeast: 1}, func(w *way) (float64, error) { return w.dialRate(target, d) }},
		{"echo of 64 bytes p50, ms", goals.Goal{AtMost: 1}, func(w *way) (float64, error) { return w.echo(target, 1000) }},
	}
}

type measurement struct {
	name string
	goal goals.Goal
	f    func(*way) (float64, error)
}

// compare prints a row for each measurement: the medians of all ways, and the ratio of the first one to
// ssh -D, which has to reach the goal.
func compare(o options, ways []*way, names []string, target string) error {
	base := slices.Index(names, "ssh -D")
	fmt.Printf("| measurement | %s | %s / ssh -D | goal | |\n|%s\n", strings.Join(names, " | "), names[0], strings.Repeat(" --- |", len(names)+4))
	for _, m := range measurements(target, o.duration) {
		medians, err := m.row(o, ways, names)
		if err != nil {
			return err
		}
		ratio := medians[0] / medians[base]
		fmt.Printf(" %.2f | %s |\n", ratio, o.missed.Cells(names[0]+", "+m.name, m.goal, ratio))
	}
	return nil
}

// withoutGoals is compare without the ratio and its goal.
func withoutGoals(o options, ways []*way, names []string, target string) error {
	fmt.Printf("| measurement | %s |\n|%s\n", strings.Join(names, " | "), strings.Repeat(" --- |", len(names)+1))
	for _, m := range measurements(target, o.duration) {
		if _, err := m.row(o, ways, names); err != nil {
			return err
		}
		fmt.Println()
	}
	return nil
}

// row measures all ways in turns, and prints the beginning of a row: the medians.
func (m measurement) row(o options, ways []*way, names []string) (medians []float64, err error) {
	got := make([][]float64, len(ways))
	for range o.reps {
		for i, w := range ways {
			v, err := m.f(w)
			if err != nil {
				return nil, fmt.Errorf("%s: %s: %w", names[i], m.name, err)
			}
			got[i] = append(got[i], v)
		}
	}
	fmt.Printf("| %s |", m.name)
	for i := range ways {
		medians = append(medians, goals.Quantile(got[i], 0.5))
		fmt.Printf(" %.3g |", medians[i])
	}
	return medians, nil
}
