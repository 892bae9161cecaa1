// SPDX-License-Identifier: Apache-2.0

// Command bench-scheduler compares second schedulers: the one from the Kubernetes documentation, the same with
// Fairlead's request limits, and Fairlead's profiles. Each run starts a new etcd and a new kube-apiserver, both
// real. Nodes are only API objects, and one scheduler runs at a time. With -together two schedulers run at once,
// and the benchmark counts their conflicts.
//
// Start at [measure] in run.go; workload.go says what pods there are, contender.go who competes, report.go what is
// written; together.go is about two schedulers at once.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

type options struct {
	programs, results, docs string
	nodes                   []int
	repetitions             int
	only                    string
	rates                   []int
	openNodes, openSeconds  int
	othersLimit             float64
	render                  bool
	together                int
	profiles                string
	profileSeconds          int
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench-scheduler:", err)
		os.Exit(1)
	}
}

func parse() (options, error) {
	var o options
	var nodes, rates string
	flag.StringVar(&o.programs, "programs", "", "directory with etcd, kube-apiserver, kube-scheduler (default: fairlead's cache)")
	flag.StringVar(&o.results, "results", "results.jsonl", "file to which results are appended, one per line; those of -together go into together.jsonl next to it")
	flag.StringVar(&o.docs, "docs", "", "directory of scheduler-benchmark.md, whose tables are replaced, and of the plot (default: the results' own)")
	flag.StringVar(&nodes, "nodes", "1000,100,5000", "cluster sizes")
	flag.IntVar(&o.repetitions, "repetitions", 3, "runs of each scheduler")
	flag.StringVar(&o.only, "only", "", "measure only what holds one of these, comma-separated, in workload/scheduler: batch,services/fairlead")
	flag.StringVar(&rates, "rates", "50,100,300", "pods per second that arrive in the open loop; empty: none")
	flag.IntVar(&o.openNodes, "open-nodes", 1000, "cluster size at which open loops are run")
	flag.IntVar(&o.openSeconds, "open-seconds", 10, "length of each open loop")
	flag.Float64Var(&o.othersLimit, "others-limit", 0.1, "leave results out of the tables if more than this share of the machine went to other work")
	flag.BoolVar(&o.render, "render", false, "measure nothing, write tables and plot from the results")
	flag.IntVar(&o.together, "together", 0, "instead, run two schedulers at once this many times in each arrangement")
	flag.StringVar(&o.profiles, "cpuprofiles", "", "directory for CPU profiles of the schedulers during the burst")
	flag.IntVar(&o.profileSeconds, "cpuprofile-seconds", 3, "length of these")
	flag.Parse()
	var err error
	if o.nodes, err = numbers(nodes); err != nil {
		return o, fmt.Errorf("-nodes: %w", err)
	}
	if o.rates, err = numbers(rates); err != nil {
		return o, fmt.Errorf("-rates: %w", err)
	}
	if o.repetitions < 1 || o.openSeconds < 1 || o.together < 0 {
		return o, errors.New("-repetitions and -open-seconds must be at least 1, -together at least 0")
	}
	if o.docs == "" {
		o.docs = filepath.Dir(o.results)
	}
	return o, nil
}

func numbers(list string) ([]int, error) {
	var out []int
	for _, s := range strings.FieldsFunc(list, func(r rune) bool { return r == ',' }) {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%q is not a positive number", s)
		}
		out = append(out, n)
	}
	return out, nil
}

func run(ctx context.Context) error {
	o, err := parse()
	if err != nil {
		return err
	}
	switch {
	case o.render:
	case o.together > 0:
		err = measureTogether(ctx, o)
	default:
		err = measureAll(ctx, o)
	}
	if err != nil {
		return err
	}
	return report(o)
}

// chosen are the contenders to measure.
func (o options) chosen() []contender {
	return slices.DeleteFunc(contenders(), func(c contender) bool {
		return o.only != "" && !slices.ContainsFunc(strings.Split(o.only, ","), func(part string) bool {
			return strings.Contains(c.workload+"/"+c.name, part)
		})
	})
}

// measureAll alternates between schedulers, forward and back, so other load on the machine affects all of them.
func measureAll(ctx context.Context, o options) error {
	programs, err := find(ctx, o.programs)
	if err != nil {
		return err
	}
	chosen := o.chosen()
	if len(chosen) == 0 {
		return fmt.Errorf("-only %q selects nothing: give parts of workload/scheduler such as services/stock", o.only)
	}
	for _, n := range o.nodes {
		for repetition := range o.repetitions {
			for _, c := range chosen {
				begin := time.Now()
				r, err := measure(ctx, programs, c, n, o)
				if err != nil {
					return fmt.Errorf("%s, %s, %d nodes: %w", c.workload, c.name, n, err)
				}
				r.Repetition = repetition
				if err := appendResult(o.results, r); err != nil {
					return err
				}
				fmt.Printf("%s  (%s)\n", r, time.Since(begin).Round(time.Second))
			}
			slices.Reverse(chosen)
		}
	}
	return nil
}

// appendResult adds a line to a file of results.
func appendResult(path string, r any) error {
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = file.Write(append(line, '\n'))
	return errors.Join(err, file.Close())
}
