// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Names of contestants. The baseline is what ratios refer to.
const (
	upstream   = "upstream"
	directName = "direct"
	floorName  = "no agent"
	relayName  = "plain relay"
	sshName    = "ssh -D"

	tlsRelayName = "TLS relay"
)

type options struct {
	pairs  []pair
	modes  string
	only   string
	reps   int
	dur    time.Duration
	idle   int
	direct bool
	floor  bool
	ssh    bool
	goals  bool   // print the comparison with the targets alone
	docs   string // directory with tunnel-benchmark.md
}

// measurement gives one or more values by name.
type measurement struct {
	name string
	run  func(e *env) (map[string]float64, error)
	// speed measurements are made of everything that carries a connection, the
	// others of tunnels, and of mixed pairs with mixed.
	speed, mixed bool
	// first gives server and agent real-time priority.
	first bool
	// ssh measurements are made of ssh -D, too, as those of speed are.
	ssh bool
	// counts is set for what is a number of events or a time of seconds, which
	// mostly waits: all contestants are measured side by side.
	counts bool
}

// env is what a measurement works with.
type env struct {
	o    *options
	t    *target
	bulk *target // destination of loads next to what is measured
	r    *rig    // nil for direct
	via  route
	dial dialer
}

func (o *options) wants(name string) bool {
	if o.only == "" {
		return true
	}
	for _, p := range strings.Split(o.only, ",") {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return false
}

// results are values by measurement and contestant.
type results struct {
	mu    sync.Mutex
	order []string
	v     map[string]map[string][]float64
}

func (r *results) add(key, name string, v float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.v[key] == nil {
		r.v[key] = map[string][]float64{}
		r.order = append(r.order, key)
	}
	r.v[key][name] = append(r.v[key][name], v)
}

// run measures each mode in a separate process and with separate targets,
// because thousands of connections of one mode leave state behind that slows
// down the next mode.
func (o *options) run(args []string) error {
	modes := strings.Split(o.modes, ",")
	if len(modes) == 1 {
		return o.runMode(o.modes)
	}
	for _, mode := range modes {
		c := exec.CommandContext(context.Background(), "/proc/self/exe", append(slices.Clone(args), "-modes="+mode)...)
		c.Stdout, c.Stderr = os.Stdout, os.Stderr
		c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
		if err := c.Run(); err != nil {
			return fmt.Errorf("mode %s: %w", mode, err)
		}
	}
	return nil
}

func (o *options) runMode(mode string) error {
	if _, err := findSSH(); o.ssh && err != nil {
		fmt.Fprintln(os.Stderr, "without ssh -D:", err)
		o.ssh = false
	}
	e := &env{o: o}
	var err error
	for _, t := range []**target{&e.t, &e.bulk} {
		if *t, err = startTarget(); err != nil {
			return err
		}
		defer (*t).stop()
	}
	res := &results{v: map[string]map[string][]float64{}}
	for _, m := range measurements {
		if !o.wants(m.name) {
			continue
		}
		for rep := range o.reps {
			e.measureAll(m, mode, rep, res)
		}
	}
	if !o.goals {
		o.print(os.Stdout, mode, res)
	}
	printGoals(os.Stdout, mode, res)
	if o.docs != "" {
		return o.writeDocs(mode, res)
	}
	return nil
}

// contestant is something that carries connections.
type contestant struct {
	name  string
	start func() (*rig, error) // nil for direct
}

func (o *options) contestants(m measurement, mode string) (cs []contestant) {
	agents := 1
	if m.name == "frozen" {
		agents = 2
	}
	for _, p := range o.pairs {
		if strings.Contains(p.name, "+") && !m.mixed {
			continue
		}
		p.first = m.first
		cs = append(cs, contestant{p.name, func() (*rig, error) { return startRig(p, mode, agents) }})
	}
	if m.speed && o.direct {
		cs = append(cs, contestant{directName, nil})
	}
	if m.speed && o.floor {
		cs = append(cs, contestant{floorName, func() (*rig, error) { return startFloor(mode) }},
			contestant{relayName, func() (*rig, error) { return startRelay(mode) }})
		if m.name != "dial" { // its connections are opened ahead
			cs = append(cs, contestant{tlsRelayName, func() (*rig, error) { return startTLSRelay(mode) }})
		}
	}
	if o.ssh && mode == "http-connect" && (m.speed || m.ssh) {
		cs = append(cs, contestant{sshName, startSSH})
	}
	return cs
}

// measureAll runs one measurement once for each contestant, in an order that
// changes with each repetition.
func (e *env) measureAll(m measurement, mode string, rep int, res *results) {
	cs := e.o.contestants(m, mode)
	var wg sync.WaitGroup
	for i := range cs {
		c := cs[(i+rep)%len(cs)]
		if !m.counts {
			e.measureFresh(m, mode, c, res)
			continue
		}
		wg.Go(func() {
			own := &env{o: e.o, bulk: e.bulk}
			t, err := startTarget()
			if err != nil {
				fmt.Fprintf(os.Stderr, "%s %s %s: %v\n", mode, m.name, c.name, err)
				return
			}
			defer t.stop()
			own.t = t
			own.measureFresh(m, mode, c, res)
		})
	}
	wg.Wait()
}

// measureFresh measures a contestant that is started for it.
func (e *env) measureFresh(m measurement, mode string, c contestant, res *results) {
	fresh := &env{o: e.o, t: e.t, bulk: e.bulk, via: route{kind: directRoute}}
	if c.start != nil {
		r, err := c.start()
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s %s %s: %v\n", mode, m.name, c.name, err)
			return
		}
		defer r.stop()
		fresh.r, fresh.via = r, r.via
	}
	fresh.dial = fresh.via.dialer()
	fresh.measureOne(m, c.name, res)
}

var errTooLong = errors.New("no result within two minutes")

// measureOne aborts the measurement of a contestant that hangs.
func (e *env) measureOne(m measurement, name string, res *results) {
	type outcome struct {
		values map[string]float64
		err    error
	}
	done := make(chan outcome, 1)
	go func() { v, err := m.run(e); done <- outcome{v, err} }()
	var out outcome
	select {
	case out = <-done:
	case <-time.After(2 * time.Minute):
		out.err = errTooLong
	}
	if out.err != nil {
		fmt.Fprintf(os.Stderr, "%s %s: %v\n", m.name, name, out.err)
	}
	for k, v := range out.values {
		fmt.Fprintf(os.Stderr, "%-10s %-34s %.3f\n", name, k, v)
		res.add(k, name, v)
	}
}
