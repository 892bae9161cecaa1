// SPDX-License-Identifier: Apache-2.0

// Command bench-ways-in compares the ways into a cluster with those of other programs, in
// one run on one machine. Measurements alternate between the programs; tables show medians
// and ratios. Each part has a file of its own.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/e2e/bench/internal/goals"
)

// options are what all parts have in common.
type options struct {
	// fairlead and kubectl are paths of programs.
	fairlead, kubectl, sshd string
	// reps is how often each program is measured.
	reps int
	// dir is for files of the run.
	dir string
	// bin has the konnectivity-server and the agent, for part paths.
	bin string
	// duration is the time of each measurement of a rate.
	duration time.Duration
	// missed are the rows that do not reach their goal.
	missed *goals.Missed
}

// part is one table.
type part struct {
	name string
	run  func(context.Context, options) error
}

var parts = []part{
	{"proxy", runProxy},
	{"socks5", func(_ context.Context, o options) error { return benchSOCKS5(o) }},
	{"paths", func(_ context.Context, o options) error { return benchPaths(o) }},
	{"cluster", benchCluster},
	{"stalled", benchStalled},
}

func main() {
	if len(os.Args) > 1 {
		if serve, ok := socks5Processes[os.Args[1]]; ok { // a process of part socks5
			if err := serve(); err != nil {
				fmt.Fprintln(os.Stderr, "bench-ways-in:", err)
				os.Exit(1)
			}
			return
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	var o options
	var names []string
	for _, p := range parts {
		names = append(names, p.name)
	}
	f := flag.NewFlagSet("bench-ways-in", flag.ContinueOnError)
	f.StringVar(&o.fairlead, "fairlead", "bin/fairlead", "path of fairlead")
	f.StringVar(&o.kubectl, "kubectl", "", "path of kubectl (default: build the pinned one)")
	f.IntVar(&o.reps, "reps", 5, "how often to measure each program")
	f.StringVar(&o.sshd, "sshd", "/usr/sbin/sshd", "path of sshd (Debian: openssh-server)")
	f.DurationVar(&o.duration, "duration", time.Second, "time of each measurement of a rate")
	f.StringVar(&o.bin, "bin", "bin", "directory of konnectivity-server and konnectivity-agent")
	strict := f.Bool("strict", false, "fail if a row does not reach its goal")
	o.missed = new(goals.Missed)
	only := f.String("only", strings.Join(names, ","), "parts to measure")
	if err := f.Parse(args); err != nil {
		return err
	}
	if o.reps < 1 {
		return fmt.Errorf("-reps %d: choose 1 or more", o.reps)
	}
	dir, err := os.MkdirTemp("", "bench-ways-in-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	o.dir = dir
	for name := range strings.SplitSeq(*only, ",") {
		i := slices.Index(names, name)
		if i < 0 {
			return fmt.Errorf("-only %s: choose of %s", name, strings.Join(names, ", "))
		}
		if err := parts[i].run(ctx, o); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if *strict {
		return o.missed.Err()
	}
	return nil
}
