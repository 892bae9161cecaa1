package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// Names of contestants. The baseline is what ratios refer to.
const (
	baseline   = "upstream"
	directName = "direct"
	floorName  = "no agent"
	sshName    = "ssh -D"
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
	// speed measurements are repeated, and made of everything that carries a
	// connection; the others once, of tunnels, and of mixed pairs with mixed.
	speed, mixed bool
}

// env is what a measurement works with.
type env struct {
	o    *options
	t    *target
	r    *rig // nil for direct
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
	order []string
	v     map[string]map[string][]float64
}

func (r *results) add(key, name string, v float64) {
	if r.v[key] == nil {
		r.v[key] = map[string][]float64{}
		r.order = append(r.order, key)
	}
	r.v[key][name] = append(r.v[key][name], v)
}

func (o *options) run() error {
	if _, err := findSSH(); o.ssh && err != nil {
		fmt.Fprintln(os.Stderr, "without ssh -D:", err)
		o.ssh = false
	}
	t, err := startTarget()
	if err != nil {
		return err
	}
	defer t.stop()
	all := map[string]*results{}
	for _, mode := range strings.Split(o.modes, ",") {
		res := &results{v: map[string]map[string][]float64{}}
		all[mode] = res
		for _, m := range measurements {
			if !o.wants(m.name) {
				continue
			}
			reps := o.reps
			if !m.speed {
				reps = 1
			}
			for rep := range reps {
				o.measureAll(m, mode, rep, t, res)
			}
		}
		if !o.goals {
			o.print(os.Stdout, mode, res)
		}
		printGoals(os.Stdout, mode, res)
	}
	if o.docs != "" {
		return o.writeDocs(all)
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
		cs = append(cs, contestant{p.name, func() (*rig, error) { return startRig(p, mode, agents) }})
	}
	if !m.speed {
		return cs
	}
	if o.direct {
		cs = append(cs, contestant{directName, nil})
	}
	if o.floor {
		cs = append(cs, contestant{floorName, func() (*rig, error) { return startFloor(mode) }})
	}
	if o.ssh && mode == "http-connect" {
		cs = append(cs, contestant{sshName, startSSH})
	}
	return cs
}

// measureAll runs one measurement once for each contestant, in an order that
// changes with each repetition.
func (o *options) measureAll(m measurement, mode string, rep int, t *target, res *results) {
	cs := o.contestants(m, mode)
	for i := range cs {
		c := cs[(i+rep)%len(cs)]
		e := &env{o: o, t: t, dial: dialDirect}
		if c.start != nil {
			r, err := c.start()
			if err != nil {
				fmt.Fprintf(os.Stderr, "%s %s %s: %v\n", mode, m.name, c.name, err)
				continue
			}
			e.r, e.dial = r, r.dial
		}
		o.measureOne(m, c.name, e, res)
		if e.r != nil {
			e.r.stop()
		}
	}
}

var errTooLong = errors.New("no result within two minutes")

// measureOne gives up a contestant that is stuck.
func (o *options) measureOne(m measurement, name string, e *env, res *results) {
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
