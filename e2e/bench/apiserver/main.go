// SPDX-License-Identifier: Apache-2.0

// Command bench-apiserver measures fairlead-apiserver. Watches, lists and memory are measured at processes of its own,
// which ask konnectivity-servers that this program imitates. What such processes cost a konnectivity-server is measured at a
// real one. What kube-apiserver is part of is measured on an embedded cluster. Each part has a file of its own. Times depend on the machine: compare those of one run.
//
//	make bench-apiserver BENCH_FLAGS='-only watch,pages -duration 10s'
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/interrupt"

	"github.com/fairlead-dev/fairlead/e2e/bench/internal/goals"
)

// options are the flags.
type options struct {
	fairlead, apiserver string
	konnectivity        string
	watchers, rate      int
	connections         int
	agents, servers     int
	gets, kills         int
	duration, bound     time.Duration
	strict              bool
	dir                 string
}

// bench collects figures.
type bench struct {
	options
	missed goals.Missed
}

// parts of the benchmark, in their order.
var parts = []struct {
	name string
	run  func(*bench, context.Context) error
}{
	{"watch", (*bench).watch},
	{"pages", (*bench).pages},
	{"memory", (*bench).memory},
	{"askers", (*bench).besideAskers},
	{"cluster", (*bench).cluster},
}

func main() {
	if len(os.Args) > 1 {
		if child, ok := childPrograms[os.Args[1]]; ok { // a process of part askers
			if err := child(os.Args[2:]); err != nil {
				fmt.Fprintf(os.Stderr, "bench-apiserver %s: %v\n", os.Args[1], err)
				os.Exit(1)
			}
			return
		}
	}
	ctx, stop := interrupt.Context(context.Background())
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench-apiserver:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) (err error) {
	var names []string
	for _, p := range parts {
		names = append(names, p.name)
	}
	b := &bench{}
	f := flag.NewFlagSet("bench-apiserver", flag.ContinueOnError)
	f.StringVar(&b.fairlead, "fairlead", "bin/fairlead", "path of fairlead")
	f.StringVar(&b.apiserver, "apiserver", "bin/fairlead-apiserver", "path of fairlead-apiserver")
	f.StringVar(&b.konnectivity, "konnectivity-server", "bin/konnectivity-server", "path of konnectivity-server")
	f.IntVar(&b.watchers, "watchers", 1000, "number of watches at a time")
	f.IntVar(&b.rate, "rate", 100, "events per second for each watch")
	f.IntVar(&b.connections, "connections", 10_000, "number of connections in a list, and at the konnectivity-server that is asked")
	f.IntVar(&b.agents, "agents", 5000, "number of agents for the figure of memory, and at the konnectivity-server that is asked")
	f.IntVar(&b.servers, "servers", 3, "number of konnectivity-servers that each of these agents is connected to")
	f.IntVar(&b.gets, "gets", 2000, "number of objects to read through kube-apiserver and directly")
	f.IntVar(&b.kills, "kills", 9, "how often a server with a watch is killed")
	f.DurationVar(&b.duration, "duration", 30*time.Second, "time of each measurement of a rate")
	f.DurationVar(&b.bound, "bound", 2*time.Minute, "limit of each wait")
	f.BoolVar(&b.strict, "strict", false, "fail if a goal is missed")
	only := f.String("only", strings.Join(names, ","), "parts to measure")
	if err := f.Parse(args); err != nil {
		return err
	}
	chosen := strings.Split(*only, ",")
	for _, name := range chosen {
		if !slices.Contains(names, name) {
			return fmt.Errorf("-only %s: choose of %s", name, strings.Join(names, ", "))
		}
	}
	if b.dir, err = os.MkdirTemp("", "bench-apiserver-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	load, _ := os.ReadFile("/proc/loadavg")
	fmt.Printf("%d CPUs, %s, load before %s\n| what | figure | goal | |\n|---|---|---|---|\n", runtime.NumCPU(), runtime.Version(), strings.TrimSpace(string(load)))
	for _, p := range parts {
		if !slices.Contains(chosen, p.name) {
			continue
		}
		if err := p.run(b, ctx); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	if b.strict {
		return b.missed.Err()
	}
	return nil
}

// row prints a figure that has no goal.
func row(what, format string, args ...any) {
	fmt.Printf("| %s | %s | | |\n", what, fmt.Sprintf(format, args...))
}

// goal prints a figure and whether it is within its goal.
func goal[T cmp.Ordered](b *bench, what string, got, atMost T) {
	fmt.Printf("| %s | %v | ≤ %v | %s |\n", what, got, atMost, b.missed.Word(what, got <= atMost))
}

func quantile(of []time.Duration, q float64) time.Duration {
	if len(of) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(of))
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))].Round(10 * time.Microsecond)
}

// until repeats a call until it succeeds.
func (b *bench) until(ctx context.Context, what string, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, b.bound)
	defer cancel()
	for {
		err := call(ctx)
		if err == nil {
			return nil
		}
		if wait(ctx, 50*time.Millisecond) != nil {
			return fmt.Errorf("wait for %s: %w", what, err)
		}
	}
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
