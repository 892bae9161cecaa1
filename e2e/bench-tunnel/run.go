package main

import (
	"fmt"
	"os"
	"strings"
	"time"
)

type options struct {
	pairs  []pair
	modes  string
	only   string
	reps   int
	dur    time.Duration
	idle   int
	direct bool
}

// measurement gives one or more values by name.
type measurement struct {
	name string
	run  func(e *env) (map[string]float64, error)
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

// results are values by mode, measurement value and pair.
type results struct {
	order []string
	v     map[string]map[string][]float64
}

func (r *results) add(key, pair string, v float64) {
	if r.v[key] == nil {
		r.v[key] = map[string][]float64{}
		r.order = append(r.order, key)
	}
	r.v[key][pair] = append(r.v[key][pair], v)
}

func (o *options) run() error {
	t, err := startTarget()
	if err != nil {
		return err
	}
	defer t.stop()
	for _, mode := range strings.Split(o.modes, ",") {
		res := &results{v: map[string]map[string][]float64{}}
		for _, m := range measurements {
			if !o.wants(m.name) {
				continue
			}
			for rep := range o.reps {
				o.measureAll(m, mode, rep, t, res)
			}
		}
		o.print(mode, res)
	}
	return nil
}

// measureAll runs one measurement once for each pair.
func (o *options) measureAll(m measurement, mode string, rep int, t *target, res *results) {
	if o.direct && m.run != nil && directToo[m.name] {
		o.measureOne(m, "direct", &env{o: o, t: t, dial: dialDirect}, res)
	}
	for i := range o.pairs {
		p := o.pairs[(i+rep)%len(o.pairs)]
		agents := 1
		if strings.HasPrefix(m.name, "frozen") {
			agents = 2
		}
		r, err := startRig(p, mode, agents)
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s %s %s: %v\n", mode, m.name, p.name, err)
			continue
		}
		o.measureOne(m, p.name, &env{o: o, t: t, r: r, dial: r.dial}, res)
		r.stop()
	}
}

func (o *options) measureOne(m measurement, name string, e *env, res *results) {
	values, err := m.run(e)
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s %s: %v\n", m.name, name, err)
	}
	for k, v := range values {
		fmt.Fprintf(os.Stderr, "%-10s %-34s %.3f\n", name, k, v)
		res.add(k, name, v)
	}
}

// print writes a table in Markdown.
func (o *options) print(mode string, res *results) {
	fmt.Printf("\n### %s over UDS\n\n| measurement |", mode)
	names := make([]string, 0, len(o.pairs)+1)
	if o.direct {
		names = append(names, "direct")
	}
	for _, p := range o.pairs {
		names = append(names, p.name)
	}
	for _, n := range names {
		fmt.Printf(" %s |", n)
	}
	fmt.Printf("\n|---|%s\n", strings.Repeat("--:|", len(names)))
	for _, key := range res.order {
		fmt.Printf("| %s |", key)
		base := median(res.v[key]["upstream"])
		for _, n := range names {
			v, ok := res.v[key][n]
			switch {
			case !ok:
				fmt.Print(" – |")
			case n == "upstream" || base == 0:
				fmt.Printf(" %.4g |", median(v))
			default:
				fmt.Printf(" %.4g (%.2fx) |", median(v), median(v)/base)
			}
		}
		fmt.Println()
	}
}
