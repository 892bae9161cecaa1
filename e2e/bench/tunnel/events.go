// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"syscall"
	"time"
)

// losing writes and closes at once, and compares what arrived.
func losing(e *env) (map[string]float64, error) {
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
	got, whole := collect(e.t.counts, n, size)
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

// churnRest is how long a pair may keep connections that churn left behind:
// agents give up a destination that does not answer after 5 s.
const churnRest = 7 * time.Second

// churning opens and closes connections in all the ways that clients do, and
// counts those that are left.
func churning(e *env) (map[string]float64, error) {
	silent, err := silentAddr()
	if err != nil {
		return nil, err
	}
	defer silent.close()
	time.Sleep(500 * time.Millisecond)
	before := e.r.fds()
	g0 := e.r.goroutines()
	dialRate(e.dial, e.t.addr, 32, e.o.dur)
	goAwayDialling(e.dial, e.t.addr, 2*time.Millisecond)
	goAwayDialling(e.dial, silent.addr, 50*time.Millisecond)
	time.Sleep(churnRest)
	out := map[string]float64{"fds left after churn": e.r.fds() - before}
	if e.r.ports.health != 0 { // it has metrics
		out["goroutines left after churn"] = e.r.goroutines() - g0
	}
	return out, nil
}

// goAwayDialling dials 300 times and closes each at a random moment before the
// time is over, whether there is an answer or not.
func goAwayDialling(d dialer, addr string, within time.Duration) {
	var wg sync.WaitGroup
	for range 30 {
		wg.Go(func() {
			for range 10 {
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rand.Int64N(int64(within))))
				if c, err := d(ctx, addr); err == nil {
					c.Close()
				}
				cancel()
			}
		})
	}
	wg.Wait()
}

// silence is a destination that neither accepts nor refuses.
type silence struct {
	addr  string
	fd    int
	conns []net.Conn
}

// silentAddr listens with the shortest queue and fills it.
func silentAddr() (*silence, error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	s := &silence{fd: fd}
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), syscall.Listen(fd, 0)); err != nil {
		s.close()
		return nil, err
	}
	sa, err := syscall.Getsockname(fd)
	if err != nil {
		s.close()
		return nil, err
	}
	s.addr = fmt.Sprintf("127.0.0.1:%d", sa.(*syscall.SockaddrInet4).Port)
	for range 8 {
		c, err := (&net.Dialer{Timeout: 200 * time.Millisecond}).DialContext(context.Background(), "tcp", s.addr)
		if err != nil {
			return s, nil //nolint:nilerr // the queue is full: that is what it takes
		}
		s.conns = append(s.conns, c)
	}
	s.close()
	return nil, errors.New("a listening socket whose queue is full still answers")
}

func (s *silence) close() {
	closeAll(s.conns)
	_ = syscall.Close(s.fd)
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

const (
	// grace is for how long programs may let connections go on when they are
	// asked to stop.
	grace = 2 * time.Second
	// exitLimit is for how long an exit is waited for.
	exitLimit = 6 * time.Second
)

// terminate measures the time from SIGTERM to exit.
func (p *proc) terminate() float64 {
	start := time.Now()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
		return time.Since(start).Seconds()
	case <-time.After(exitLimit):
		return exitLimit.Seconds()
	}
}

// ending is one way in which a program is asked to stop.
type ending struct {
	name      string
	agent     bool
	connected bool
	grace     time.Duration // of the server; agents always have one
}

var endings = []ending{
	{name: "exit s, idle agent", agent: true, grace: grace},
	{name: "exit s, idle server", grace: grace},
	{name: "exit s, agent with a connection, grace 2 s", agent: true, connected: true, grace: grace},
	{name: "exit s, server with a connection, grace 2 s", connected: true, grace: grace},
	{name: "exit s, server with a connection, no grace", connected: true},
}

// exiting measures the time from SIGTERM to exit.
func exiting(e *env) (map[string]float64, error) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	var errs []error
	out := map[string]float64{}
	for _, w := range endings {
		wg.Go(func() {
			took, err := e.exitTime(w)
			mu.Lock()
			defer mu.Unlock()
			if errs = append(errs, err); err == nil {
				out[w.name] = took
			}
		})
	}
	wg.Wait()
	return out, errors.Join(errs...)
}

// exitTime starts a pair and ends one of its programs.
func (e *env) exitTime(w ending) (float64, error) {
	var extra []string
	if w.grace > 0 {
		extra = append(extra, "--graceful-shutdown-timeout="+w.grace.String())
	}
	r, err := startRig(e.r.pair, e.r.mode, 1, extra...)
	if err != nil {
		return 0, err
	}
	defer r.stop()
	d := r.via.dialer()
	if w.connected {
		c, err := open(d, e.t.addr, opEcho)
		if err != nil {
			return 0, err
		}
		defer func() { go c.Close() }()
	} else if err := dialOnce(d, e.t.addr); err != nil {
		return 0, err
	}
	time.Sleep(500 * time.Millisecond)
	if w.agent {
		return r.agents[0].terminate(), nil
	}
	return r.server.terminate(), nil
}
