// Command bench-scheduler measures second schedulers beside each other: the one that Kubernetes' documentation installs,
// the same with Fairlead's request limits, and Fairlead's profiles. etcd and kube-apiserver are real and started anew for
// every run, nodes are objects, and one scheduler runs at a time.
//
// Start at [measure] in run.go; workload.go says what pods there are, contender.go who competes, report.go what is
// written.
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
	openSeconds             int
	render                  bool
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
	flag.StringVar(&o.results, "results", "results.jsonl", "file to which results are appended, one per line")
	flag.StringVar(&o.docs, "docs", "", "directory for scheduler-benchmark.svg and -table.md (default: the results' own)")
	flag.StringVar(&nodes, "nodes", "100,1000,5000", "cluster sizes")
	flag.IntVar(&o.repetitions, "repetitions", 3, "runs of each scheduler")
	flag.StringVar(&o.only, "only", "", "measure only workloads or schedulers whose name holds this")
	flag.StringVar(&rates, "rates", "50,100,300", "pods per second that arrive in the open loop; empty: none")
	flag.IntVar(&o.openSeconds, "open-seconds", 10, "length of each open loop")
	flag.BoolVar(&o.render, "render", false, "measure nothing, write table and plot from the results")
	flag.Parse()
	var err error
	if o.nodes, err = numbers(nodes); err != nil {
		return o, fmt.Errorf("-nodes: %w", err)
	}
	if o.rates, err = numbers(rates); err != nil {
		return o, fmt.Errorf("-rates: %w", err)
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
	if !o.render {
		if err := measureAll(ctx, o); err != nil {
			return err
		}
	}
	return report(o)
}

// measureAll alternates between schedulers, so that what else goes on in the machine meets all of them.
func measureAll(ctx context.Context, o options) error {
	programs, err := find(ctx, o.programs)
	if err != nil {
		return err
	}
	for _, n := range o.nodes {
		for repetition := range o.repetitions {
			for _, c := range contenders() {
				if o.only != "" && !strings.Contains(c.workload+"/"+c.name, o.only) {
					continue
				}
				if ctx.Err() != nil {
					return ctx.Err()
				}
				begin := time.Now()
				r, err := measure(ctx, programs, c, n, o)
				if err != nil {
					return fmt.Errorf("%s, %s, %d nodes: %w", c.workload, c.name, n, err)
				}
				r.Repetition = repetition
				if err := appendResult(o.results, r); err != nil {
					return err
				}
				fmt.Printf("%5d nodes  %-8s %-12s %7.1f pods/s  %6.2f CPU ms/pod  %s  (%s)\n", n, c.workload, c.name,
					r.PodsPerSecond, r.CPUMillisPerPod, r.openText(), time.Since(begin).Round(time.Second))
			}
		}
	}
	return nil
}

func appendResult(path string, r *result) error {
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
