// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/fairlead-dev/fairlead/e2e/harness"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunneltest/kasdial"

	"github.com/fairlead-dev/fairlead/e2e/bench/internal/benchcluster"
	"github.com/fairlead-dev/fairlead/e2e/bench/internal/certs"
)

const (
	// turn is how long one number of askers is measured before the next one is.
	turn = 5 * time.Second
	// settling is for the askers to begin, and for the last ones to end.
	settling = 500 * time.Millisecond
	// dialRate is how many dials begin in a second, however long each takes.
	dialRate = 200
	// dialers are at work until all connections are open.
	dialers = 32
)

// askers are programs that ask a konnectivity-server for its state once a second each, as replicas of fairlead-apiserver do.
type askers struct {
	n int
	// list is how many connections each asks for as well, as a replica does while clients list tunnelconnections.
	list int
}

func (a askers) String() string {
	switch {
	case a.n == 0:
		return "no askers"
	case a.list > 0:
		return fmt.Sprintf("%d askers that also list all connections each second", a.n)
	}
	return fmt.Sprintf("%d askers", a.n)
}

// loaded is a real konnectivity-server with agents and open connections.
type loaded struct {
	server        *child
	tunnel, state string // its sockets
	target        string // where dials go
}

// besideAskers measures what those who ask a konnectivity-server for its state cost it, and dials through it. The numbers of
// askers take turns.
func (b *bench) besideAskers(ctx context.Context) error {
	var c children
	defer c.stop()
	l, err := b.load(ctx, &c)
	if err != nil {
		return err
	}
	held, err := b.hold(ctx, l)
	defer func() {
		for _, nc := range held {
			_ = nc.Close()
		}
	}()
	if err != nil {
		return err
	}
	all := []askers{{}, {n: 3}, {n: 10}, {n: 10, list: b.connections}}
	got := make([][]turnFigures, len(all))
	for range max(1, int(b.duration/turn)) {
		for i, a := range all {
			f, err := l.turn(ctx, a)
			if err != nil {
				return fmt.Errorf("%s: %w", a, err)
			}
			got[i] = append(got[i], f)
		}
	}
	for i, a := range all {
		median := func(of func(turnFigures) time.Duration) time.Duration {
			var values []time.Duration
			for _, f := range got[i] {
				values = append(values, of(f))
			}
			return quantile(values, 0.5)
		}
		text := fmt.Sprintf("dial p50 %v, p99 %v; %.2f cores", median(func(f turnFigures) time.Duration { return f.dials.P50 }),
			median(func(f turnFigures) time.Duration { return f.dials.P99 }), median(func(f turnFigures) time.Duration { return f.cpu }).Seconds())
		if a.n > 0 {
			text += fmt.Sprintf("; answers p50 %v of %.1f MB", median(func(f turnFigures) time.Duration { return f.answer }), float64(got[i][0].size)/1e6)
		}
		row(fmt.Sprintf("konnectivity-server with %d connections and %d agents, %s", b.connections, b.agents, a), "%s", text)
	}
	return nil
}

// turnFigures are what one turn has shown.
type turnFigures struct {
	dials  harness.Dials
	cpu    time.Duration // of the server, for each second
	answer time.Duration // median of one asker's requests of one second
	size   int64         // of these answers
}

func (l *loaded) turn(ctx context.Context, a askers) (f turnFigures, err error) {
	var asking *child
	if a.n > 0 {
		if asking, err = startChild(ctx, "askers", l.state, strconv.Itoa(a.n), strconv.Itoa(a.list)); err != nil {
			return f, err
		}
		defer asking.kill()
	}
	if err := wait(ctx, settling); err != nil {
		return f, err
	}
	before, err := cpu(l.server.pid())
	if err != nil {
		return f, err
	}
	start := time.Now()
	dialing := harness.StartLoad(ctx, dialRate, func(ctx context.Context) error {
		nc, err := l.dial(ctx)
		if err == nil {
			err = nc.Close()
		}
		return err
	})
	err = wait(ctx, turn)
	f.dials = dialing.Stop()
	after, cpuErr := cpu(l.server.pid())
	f.cpu = time.Duration(float64(after-before) / time.Since(start).Seconds())
	if err = errors.Join(err, cpuErr); err == nil && f.dials.Failed > 0 {
		err = fmt.Errorf("dials failed: %s", f.dials)
	}
	if err == nil && asking != nil {
		var text string
		if text, err = asking.end(); err == nil {
			_, err = fmt.Sscan(text, (*int64)(&f.answer), &f.size)
		}
	}
	return f, err
}

// dial opens a connection as kube-apiserver does.
func (l *loaded) dial(ctx context.Context) (net.Conn, error) {
	nc, err := kasdial.Unix(ctx, l.tunnel)
	if err != nil {
		return nil, err
	}
	if deadline, ok := ctx.Deadline(); ok {
		_ = nc.SetDeadline(deadline)
		defer func() { _ = nc.SetDeadline(time.Time{}) }()
	}
	return kasdial.Handshake(nc, l.target)
}

// load starts a konnectivity-server and its agents.
func (b *bench) load(ctx context.Context, c *children) (*loaded, error) {
	// The server and the agents have a descriptor for each agent and each connection, and some others.
	var most syscall.Rlimit
	if need, err := uint64(b.agents+b.connections+1000), syscall.Getrlimit(syscall.RLIMIT_NOFILE, &most); err != nil || need > most.Cur { //nolint:gosec // both are positive
		return nil, fmt.Errorf("-agents %d and -connections %d need %d file descriptors, and a process may have %d: raise ulimit -n, or choose fewer: %w",
			b.agents, b.connections, need, most.Cur, errors.Join(err))
	}
	if err := certs.Write(b.dir); err != nil {
		return nil, err
	}
	target, err := c.start(ctx, "target")
	if err != nil {
		return nil, err
	}
	l := &loaded{tunnel: filepath.Join(b.dir, "tunnel"), state: filepath.Join(b.dir, "state"), target: target.said}
	port := strconv.Itoa(benchcluster.FreePort(ctx))
	l.server, err = c.startProgram(ctx, b.konnectivity, "--mode=http-connect", "--uds-name="+l.tunnel, "--server-port=0", "--state-socket="+l.state, "--agent-bind-address=127.0.0.1", "--agent-port="+port,
		"--cluster-cert="+b.dir+"/crt", "--cluster-key="+b.dir+"/key", "--cluster-ca-cert="+b.dir+"/ca", "--links-per-agent=1",
		"--admin-port="+strconv.Itoa(benchcluster.FreePort(ctx)), "--health-port="+strconv.Itoa(benchcluster.FreePort(ctx)), "--health-bind-address=127.0.0.1")
	if err != nil {
		return nil, err
	}
	err = b.until(ctx, "the konnectivity-server to listen", func(context.Context) error { _, err := os.Stat(l.state); return err })
	if err != nil {
		return nil, l.server.explain(err)
	}
	if _, err := c.start(ctx, "agents", "127.0.0.1:"+port, b.dir, strconv.Itoa(b.agents)); err != nil {
		return nil, err
	}
	err = b.until(ctx, "agents to connect", func(ctx context.Context) error {
		st, err := stateClient(l.state).State(ctx)
		if err == nil && len(st.Links) < b.agents {
			err = fmt.Errorf("%d of %d agents are connected", len(st.Links), b.agents)
		}
		return err
	})
	if err != nil {
		return nil, l.server.explain(err)
	}
	return l, nil
}

// hold opens the connections.
func (b *bench) hold(ctx context.Context, l *loaded) ([]net.Conn, error) {
	type opened struct {
		nc  net.Conn
		err error
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	places, results := make(chan struct{}, dialers), make(chan opened)
	go func() {
		for range b.connections {
			places <- struct{}{}
			go func() {
				ctx, cancel := context.WithTimeout(ctx, b.bound)
				defer cancel()
				nc, err := l.dial(ctx)
				<-places
				results <- opened{nc, err}
			}()
		}
	}()
	var held []net.Conn
	var errs []error
	for range b.connections {
		if r := <-results; r.err == nil {
			held = append(held, r.nc)
		} else {
			errs = append(errs, r.err)
			cancel()
		}
	}
	if len(errs) > 0 {
		return held, fmt.Errorf("%d of %d connections failed: %w", len(errs), b.connections, errs[0])
	}
	st, err := stateClient(l.state).State(ctx)
	if err == nil && st.Server.Connections < int64(b.connections) {
		err = fmt.Errorf("the server has %d connections of %d", st.Server.Connections, b.connections)
	}
	return held, err
}
