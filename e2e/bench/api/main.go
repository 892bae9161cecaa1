// SPDX-License-Identifier: Apache-2.0

// Command bench-api measures the declarative API on an embedded cluster of its own: what
// conversion costs, through the tunnel and the operator's webhook; what the operator writes and
// holds when there is nothing to do; and how long objects that are stored in the old version stay
// unreadable when kube-apiserver restarts. Times depend on the machine: compare those of one run.
//
//	make bench-api BENCH_FLAGS='-old 500 -steady 20s'
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/cluster"
	"github.com/fairlead-dev/fairlead/pkg/cluster/embedded"
	"github.com/fairlead-dev/fairlead/pkg/cluster/process"
	"github.com/fairlead-dev/fairlead/pkg/interrupt"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead-dev/fairlead/e2e/bench/internal/benchcluster"
)

// name keeps the benchmark's cluster apart from the user's.
const name = "bench-api"

// options are the flags.
type options struct {
	fairlead   string
	gets, list int
	old, size  int
	steady     time.Duration
	bound      time.Duration
	strict     bool
}

// bench is a running cluster.
type bench struct {
	options
	kube       kubernetes.Interface
	dynamic    dynamic.Interface
	rest       rest.Interface
	supervisor *process.Client
	// missed are the rows whose goal is missed.
	missed []string
}

func main() {
	var o options
	flag.StringVar(&o.fairlead, "fairlead", "bin/fairlead", "path of fairlead, next to fairlead-operator")
	flag.IntVar(&o.gets, "gets", 1000, "number of single objects to read")
	flag.IntVar(&o.list, "list", 1500, "number of objects in a list")
	flag.IntVar(&o.old, "old", 5000, "number of objects stored in the old version")
	flag.IntVar(&o.size, "size", 10<<10, "bytes of an object")
	flag.DurationVar(&o.steady, "steady", 2*time.Minute, "how long to watch the operator do nothing")
	flag.DurationVar(&o.bound, "bound", 3*time.Minute, "limit of each wait")
	flag.BoolVar(&o.strict, "strict", false, "fail if a goal is missed")
	flag.Parse()
	ctx, stop := interrupt.Context(context.Background())
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench-api:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) (err error) {
	dir, err := os.MkdirTemp("", "bench-api-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	kubeconfig, down, err := benchcluster.Start(ctx, o.fairlead, dir, name, "", "--operator")
	defer func() { err = errors.Join(err, down()) }()
	if err != nil {
		return err
	}
	b, err := connect(o, kubeconfig)
	if err != nil {
		return err
	}
	fmt.Printf("%d CPUs, %s\n\n| what | figure |\n|---|---|\n", runtime.NumCPU(), runtime.Version())
	for _, part := range []func(context.Context) error{b.steadyState, b.conversion, b.restart} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	if len(b.missed) > 0 {
		fmt.Printf("\nGoals missed: %s\n", strings.Join(b.missed, "; "))
		if o.strict {
			return fmt.Errorf("%d goals are missed", len(b.missed))
		}
	}
	return nil
}

// goal notes whether a row reaches its goal.
func (b *bench) goal(what string, reached bool) {
	if !reached {
		b.missed = append(b.missed, what)
	}
}

// row prints one figure.
func row(what, format string, args ...any) {
	fmt.Printf("| %s | %s |\n", what, fmt.Sprintf(format, args...))
}

func connect(o options, kubeconfig string) (*bench, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1 // the benchmark must not wait for itself
	config.WarningHandler = rest.NoWarnings{}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	dyn, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	root, err := cluster.Root()
	if err != nil {
		return nil, err
	}
	layout, err := embedded.NewLayout(root, name)
	if err != nil {
		return nil, err
	}
	return &bench{options: o, kube: kube, dynamic: dyn, rest: kube.CoreV1().RESTClient(), supervisor: process.NewClient(layout.SupervisorSocket())}, nil
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
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", what, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
