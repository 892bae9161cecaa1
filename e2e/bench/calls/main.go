// SPDX-License-Identifier: Apache-2.0

// Command bench-calls measures what users of a cluster feel: exec, logs, port-forward, cp, calls of a
// webhook and of an aggregated API. One kind cluster has three API servers in addition to its own: one reaches nodes and Pods
// through Fairlead's tunnel, one through upstream's, one directly. Measurements alternate between them, so
// compare the figures of one run.
//
//	make bench-calls BENCH_FLAGS='-reps 3 -only exec,logs'
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/fairlead-dev/fairlead/e2e/harness"
	"github.com/fairlead-dev/fairlead/pkg/interrupt"

	"github.com/fairlead-dev/fairlead/e2e/bench/internal/goals"
)

// options are the flags.
type options struct {
	bin, upstream string
	reps          int
	mebibytes     int
	strict        bool
	only          []string
}

func main() {
	var o options
	flag.StringVar(&o.bin, "bin", "bin", "directory of Fairlead's programs")
	flag.StringVar(&o.upstream, "upstream", "", "directory of upstream's programs server and agent")
	flag.IntVar(&o.reps, "reps", 5, "how often to measure each row for each API server")
	flag.IntVar(&o.mebibytes, "mebibytes", 64, "size of a transfer")
	flag.BoolVar(&o.strict, "strict", false, "fail if a row does not reach its goal")
	only := flag.String("only", "", "rows to measure, by the beginnings of their names (default: all)")
	flag.Parse()
	if *only != "" {
		o.only = strings.Split(*only, ",")
	}
	ctx, stop := interrupt.Context(context.Background())
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench-calls:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) (err error) {
	if o.reps < 1 || o.mebibytes < 1 {
		return errors.New("-reps and -mebibytes: choose 1 or more")
	}
	harness.SweepUp(ctx)
	home, err := harness.NewHome(o.bin, harness.HomePrefix())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(home.Dir)) }()
	c, err := harness.Up(ctx, home, harness.Kind, harness.Options{Name: harness.ClusterName("calls"), Workers: 2})
	if c != nil {
		defer func() { err = errors.Join(err, c.Down(context.WithoutCancel(ctx))) }()
	}
	if err != nil {
		return err
	}
	defer c.Close()
	b := &bench{options: o}
	c.KeepConnections = true
	if b.ca, err = c.StartServer(ctx); err != nil {
		return err
	}
	if b.kubectl, err = c.BuildKubectl(ctx); err != nil {
		return err
	}
	if b.paths, err = threePaths(ctx, c, o.upstream); err != nil {
		return err
	}
	if err := b.prepare(ctx, c); err != nil {
		return err
	}
	return b.table(ctx)
}

// path is a way from an API server to nodes and Pods.
type path struct {
	name    string
	cluster *harness.Cluster
	// file is a kubeconfig for kubectl.
	file string
}

// The columns, in this order.
const (
	direct = iota
	upstream
	ours
)

// bench is what the rows need.
type bench struct {
	options
	paths   []path
	ca      []byte // of the server's certificate
	kubectl string
	missed  goals.Missed
}

// table measures and prints the rows.
func (b *bench) table(ctx context.Context) error {
	fmt.Printf("%d CPUs, %s; medians of %d runs in turns\n\n", runtime.NumCPU(), runtime.Version(), b.reps)
	fmt.Println("| what | direct | upstream | Fairlead | Fairlead / direct | goal | Fairlead / upstream | |\n|---|--:|--:|--:|--:|--:|--:|---|")
	for _, m := range b.measures() {
		if len(b.only) > 0 && !slices.ContainsFunc(b.only, func(o string) bool { return strings.HasPrefix(m.name, o) }) {
			continue
		}
		got := make([][][]float64, len(b.paths)) // by path, of each run its values
		for rep := range b.reps + 1 {
			for i, p := range b.paths {
				values, err := m.take(ctx, p)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", m.name, p.name, err)
				}
				if rep > 0 { // the first warms up
					got[i] = append(got[i], values)
				}
			}
		}
		for k, what := range m.what {
			var v [3]float64
			for i := range got {
				var all []float64
				for _, values := range got[i] {
					all = append(all, values[k])
				}
				v[i] = goals.Quantile(all, 0.5)
			}
			b.print(m.name, what, v)
		}
	}
	if b.strict {
		return b.missed.Err()
	}
	return nil
}

// figure is one value of a measurement, and what ours has to be of that of the direct path. A figure
// without a goal is printed only.
type figure struct {
	unit string
	goals.Goal
}

func (b *bench) print(name string, f figure, v [3]float64) {
	ratio, other, word := v[ours]/v[direct], v[ours]/v[upstream], ""
	if f.Goal != (goals.Goal{}) {
		ahead := other <= 1 // of upstream
		if f.AtLeast > 0 {
			ahead = other >= 1
		}
		word = b.missed.Word(name+", "+f.unit, f.Reached(ratio) && ahead)
	}
	fmt.Printf("| %s, %s | %.4g | %.4g | %.4g | %.2f | %s | %.2f | %s |\n", name, f.unit, v[direct], v[upstream], v[ours], ratio, f.Goal, other, word)
}
