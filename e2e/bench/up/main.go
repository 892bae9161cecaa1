// SPDX-License-Identifier: Apache-2.0

// Command benchup measures how long it takes to bring a cluster up, and how much memory it then holds:
//
//	go run ./e2e/bench/up [-provider embedded] [-cold=false] [-runs 3] [-nodes 3]
//	go run ./e2e/bench/up -provider kind [-runs 3] [-image IMAGE]
//
// Warm runs use the programs in bin/, which `make bench-up` builds first, and components that were built before. The
// cold run clones the repository's HEAD and calls `make up` there with an empty home and empty build caches; modules are
// not downloaded again. With provider kind, clusters of one control plane node and two workers are made in turn by fairlead
// and by `kind create cluster`, from the same image. Times depend on the machine: compare those of one run.
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/cluster"
	"github.com/fairlead-dev/fairlead/pkg/cluster/providers"
	"github.com/fairlead-dev/fairlead/pkg/interrupt"
)

// name keeps the benchmark's cluster apart from the user's.
const name = "bench-up"

// The project's own bounds, printed next to what was measured.
const (
	boundCold = 12 * time.Minute
	boundWarm = 20 * time.Second
	boundRSS  = 3 << 29 // 1.5 GiB
)

func main() {
	cold := flag.Bool("cold", true, "measure a fresh clone with cold caches too; takes minutes")
	runs := flag.Int("runs", 3, "number of warm runs; the median counts")
	nodes := flag.Int("nodes", 3, "number of nodes")
	provider := flag.String("provider", cluster.Embedded, "whose clusters to measure: "+strings.Join(providers.Names(), " or "))
	image := flag.String("image", "", "node image, with -provider kind (default: that of fairlead up)")
	flag.Parse()
	ctx, stop := interrupt.Context(context.Background())
	defer stop()
	measure := func() error { return run(ctx, *cold, *runs, *nodes) }
	if *provider == cluster.Kind {
		measure = func() error { return runKind(ctx, *runs, *image) }
	}
	if err := measure(); err != nil {
		fmt.Fprintln(os.Stderr, "bench-up:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, cold bool, runs, nodes int) error {
	if runs < 1 {
		return errors.New("-runs: at least 1 is needed")
	}
	fmt.Printf("%d CPUs, %s\n", runtime.NumCPU(), runtime.Version())
	warm, rss, err := measureWarm(ctx, runs, nodes)
	if err != nil {
		return err
	}
	fmt.Printf("warm, %d nodes, quick checks included: median %.1f s of %v (at most %.0f s)\n",
		nodes, median(warm).Seconds(), seconds(warm), boundWarm.Seconds())
	fmt.Printf("memory of all its processes: median %d MiB of %v (at most %d MiB)\n", median(rss)>>20, mebibytes(rss), boundRSS>>20)
	if !cold {
		return nil
	}
	took, err := measureCold(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("fresh clone, cold caches, `make up` to all quick checks: %.0f s (at most %.0f s)\n", took.Seconds(), boundCold.Seconds())
	return nil
}

// measureWarm brings a cluster up and takes it down, once more than asked: the first time may have to build.
func measureWarm(ctx context.Context, runs, nodes int) (times []time.Duration, rss []int64, err error) {
	kubeconfig, err := os.CreateTemp("", "kubeconfig") // not the user's
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = os.Remove(kubeconfig.Name()) }()
	_ = kubeconfig.Close()
	env := append(os.Environ(), "KUBECONFIG="+kubeconfig.Name())
	run := func(ctx context.Context, args ...string) ([]byte, error) {
		return command(ctx, ".", env, filepath.Join("bin", "fairlead"), append(args, "--name", name)...)
	}
	for i := range runs + 1 {
		start := time.Now()
		_, upErr := run(ctx, "up", "--nodes", strconv.Itoa(nodes))
		took := time.Since(start)
		held, rssErr := int64(0), error(nil)
		if upErr == nil {
			held, rssErr = memory(func(args ...string) ([]byte, error) { return run(ctx, args...) })
		}
		_, downErr := run(context.WithoutCancel(ctx), "down") // an interrupt leaves nothing
		if err := errors.Join(upErr, rssErr, downErr); err != nil {
			return nil, nil, err
		}
		if i > 0 {
			times, rss = append(times, took), append(rss, held)
		}
	}
	return times, rss, nil
}

// memory asks for the resident memory of all processes of the cluster, in bytes.
func memory(fairlead func(args ...string) ([]byte, error)) (int64, error) {
	out, err := fairlead("status", "--wait", "1m", "-o", "json")
	if err != nil {
		return 0, err
	}
	var status struct {
		Components struct {
			RSSBytes int64 `json:"rssBytes"`
		} `json:"components"`
	}
	if err := json.Unmarshal(out, &status); err != nil {
		return 0, fmt.Errorf("fairlead status: %w", err)
	}
	if status.Components.RSSBytes == 0 {
		return 0, errors.New("fairlead status: no memory is reported")
	}
	return status.Components.RSSBytes, nil
}

func measureCold(ctx context.Context) (took time.Duration, err error) {
	dir, err := os.MkdirTemp("", "fairlead-bench")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	clone, home := filepath.Join(dir, "fairlead"), filepath.Join(dir, "home")
	modules, err := command(ctx, ".", os.Environ(), "go", "env", "GOMODCACHE")
	if err != nil {
		return 0, err
	}
	env := append(os.Environ(), "HOME="+home, "GOMODCACHE="+strings.TrimSpace(string(modules)), "GOCACHE="+filepath.Join(home, "go-build"),
		"XDG_CACHE_HOME="+filepath.Join(home, "cache"), "XDG_STATE_HOME="+filepath.Join(home, "state"),
		"XDG_CONFIG_HOME="+filepath.Join(home, "config"), "XDG_RUNTIME_DIR=", "KUBECONFIG="+filepath.Join(home, "kubeconfig"))
	if err := os.Mkdir(home, 0o700); err != nil {
		return 0, err
	}
	if _, err := command(ctx, ".", env, "git", "clone", "--quiet", ".", clone); err != nil {
		return 0, err
	}
	start := time.Now()
	_, upErr := command(ctx, clone, env, "make", "up", "UP_FLAGS=--name "+name)
	took = time.Since(start)
	_, downErr := command(context.WithoutCancel(ctx), clone, env, "make", "down", "DOWN_FLAGS=--name "+name)
	return took, errors.Join(upErr, downErr)
}

// command runs a program and returns its standard output; the error has what it said on standard error.
func command(ctx context.Context, dir string, env []string, program string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Env = dir, env
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // let it clean up
	cmd.WaitDelay = time.Minute
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w\n%s", program, strings.Join(args, " "), err, stderr.Bytes())
	}
	return out, nil
}

func median[T cmp.Ordered](values []T) T {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

func seconds(times []time.Duration) (list []string) {
	for _, t := range times {
		list = append(list, fmt.Sprintf("%.1f", t.Seconds()))
	}
	return list
}

func mebibytes(sizes []int64) (list []int64) {
	for _, s := range sizes {
		list = append(list, s>>20)
	}
	return list
}
