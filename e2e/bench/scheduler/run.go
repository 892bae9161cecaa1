// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// result is one run.
type result struct {
	// When, Machine and Build say what was measured where: results of one build of a scheduler are never mixed with
	// those of another.
	When    time.Time `json:"when"`
	Machine string    `json:"machine"`
	Build   string    `json:"build"`
	// Load average when the run began.
	Load float64 `json:"load"`
	// Others is the share of the machine's processors used by processes that are not part of the benchmark, during
	// the burst.
	Others float64 `json:"others"`

	Nodes      int    `json:"nodes"`
	Workload   string `json:"workload"`
	Scheduler  string `json:"scheduler"`
	Repetition int    `json:"repetition"`

	// Pods of the burst, from the first binding to the last one.
	Pods          int     `json:"pods"`
	PodsPerSecond float64 `json:"podsPerSecond"`
	// CPUMillisPerPod is the scheduler's from the first binding until all events have been written, too.
	CPUMillisPerPod float64 `json:"cpuMillisPerPod"`
	// ServerMillisPerPod is the CPU time of kube-apiserver and etcd together, in the same time.
	ServerMillisPerPod float64 `json:"serverMillisPerPod"`
	// BindMillisPerPod is theirs until the last binding.
	BindMillisPerPod float64 `json:"bindMillisPerPod"`
	// EventSeconds is how long after the last binding the last event was there.
	EventSeconds float64 `json:"eventSeconds"`
	// PeakMiB is the scheduler's largest resident set over the whole run.
	PeakMiB float64 `json:"peakMiB"`
	// NodesUsed by the burst.
	NodesUsed int `json:"nodesUsed"`
	// MostOnNode and ZoneSkew say how well the burst of workload services is spread: the most Pods of one Service on one
	// node, and the largest difference between two zones' numbers of Pods of one Service.
	MostOnNode int `json:"mostOnNode,omitempty"`
	ZoneSkew   int `json:"zoneSkew,omitempty"`
	// HintsUsed of scheduler_batch_attempts_total.
	HintsUsed float64 `json:"hintsUsed"`
	// Open are create-to-bind times under open-loop arrival.
	Open []openResult `json:"open,omitempty"`
}

// openResult is one open loop.
type openResult struct {
	Rate int     `json:"rate"`
	P50  float64 `json:"p50Millis"`
	P99  float64 `json:"p99Millis"`
}

func (r *result) String() string {
	parts := []string{fmt.Sprintf("%5d nodes  %-8s %-12s %7.1f pods/s  %6.2f CPU ms/pod, %5.2f of the API server and etcd",
		r.Nodes, r.Workload, r.Scheduler, r.PodsPerSecond, r.CPUMillisPerPod, r.ServerMillisPerPod)}
	for _, o := range r.Open {
		parts = append(parts, fmt.Sprintf("%d/s p99 %.0f ms", o.Rate, o.P99))
	}
	if r.Workload == services {
		parts = append(parts, fmt.Sprintf("at most %d of a Service on a node, zones differ by %d", r.MostOnNode, r.ZoneSkew))
	}
	if r.Workload == mixed {
		parts = append(parts, fmt.Sprintf("%d nodes used", r.NodesUsed))
	}
	if r.HintsUsed > 0 {
		parts = append(parts, fmt.Sprintf("%.0f hints used", r.HintsUsed))
	}
	parts = append(parts, fmt.Sprintf("%.0f %% of the machine for others", 100*r.Others))
	return strings.Join(parts, ", ")
}

// running is a scheduler next to its control plane.
type running struct {
	*program
	port, build string
}

// measure makes one run: a control plane, nodes, a burst that waits for the scheduler, then the open loops.
func measure(ctx context.Context, programs map[string]string, c contender, nodes int, o options) (*result, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r := &result{
		When: time.Now().UTC().Truncate(time.Second), Machine: machine(), Load: load(),
		Nodes: nodes, Workload: c.workload, Scheduler: c.name, Pods: podCount(c.workload, nodes),
	}
	cp, err := startControlPlane(ctx, programs)
	if err != nil {
		return nil, err
	}
	defer cp.stop()
	if err := fill(ctx, cp, c, nodes, r.Pods); err != nil {
		return nil, err
	}
	watching, stopWatching := context.WithCancel(ctx) // before the API server is stopped
	defer stopWatching()
	bound, err := watchBindings(watching, cp.client)
	if err != nil {
		return nil, err
	}
	scheduler, err := startScheduler(ctx, cp, programs[c.program], c.config)
	if err != nil {
		return nil, err
	}
	defer scheduler.stop()
	r.Build = scheduler.build
	if err := r.burst(ctx, cp, bound, scheduler, o); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, tail(scheduler.log))
	}
	if c.workload == services && nodes == o.openNodes {
		if err := r.openLoops(ctx, cp, c, bound, o); err != nil {
			return nil, err
		}
	}
	if r.HintsUsed, err = hintsUsed(ctx, scheduler.port); err != nil {
		return nil, err
	}
	r.PeakMiB, err = peakMiB(scheduler.cmd.Process.Pid)
	return r, err
}

// fill makes all that is there before the scheduler starts.
func fill(ctx context.Context, cp *controlPlane, c contender, nodes, pods int) error {
	if err := createNodes(ctx, cp.client, nodes); err != nil {
		return fmt.Errorf("create nodes: %w", err)
	}
	if err := createServices(ctx, cp.client); err != nil {
		return fmt.Errorf("create services: %w", err)
	}
	if err := createBurst(ctx, cp.client, c, pods); err != nil {
		return fmt.Errorf("create pods: %w", err)
	}
	return nil
}

func startScheduler(ctx context.Context, cp *controlPlane, path string, config configFunc) (*running, error) {
	data, err := config(cp.kubeconfig)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(cp.dir, filepath.Base(path)+".yaml")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		return nil, err
	}
	build, err := buildOf(path, config)
	if err != nil {
		return nil, err
	}
	ports, err := freePorts(ctx, 1)
	if err != nil {
		return nil, err
	}
	p, err := start(ctx, cp.dir, path, "--config="+file, "--bind-address=127.0.0.1", "--secure-port="+ports[0], "--cert-dir="+strings.TrimSuffix(file, ".yaml")+"-certs",
		"--authentication-kubeconfig="+cp.kubeconfig, "--authorization-kubeconfig="+cp.kubeconfig)
	return &running{p, ports[0], build}, err
}

// buildOf is a digest of a program and its configuration.
func buildOf(path string, config configFunc) (string, error) {
	data, err := config("") // the path of the kubeconfig is another each time
	if err != nil {
		return "", err
	}
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }()
	digest := sha256.New()
	if _, err := io.Copy(digest, file); err != nil {
		return "", err
	}
	_, _ = digest.Write(data)
	return hex.EncodeToString(digest.Sum(nil)[:6]), nil
}

func (r *result) openLoops(ctx context.Context, cp *controlPlane, c contender, bound *bindings, o options) error {
	for _, rate := range o.rates {
		before := bound.count()
		prefix := fmt.Sprintf("open%d", rate)
		asked, err := openLoop(ctx, cp.client, c, prefix, rate, o.openSeconds)
		if err != nil {
			return fmt.Errorf("open loop at %d/s: %w", rate, err)
		}
		if err := bound.wait(ctx, before+len(asked), 5*time.Minute); err != nil {
			return fmt.Errorf("open loop at %d/s: %w", rate, err)
		}
		var times []float64
		bound.mu.Lock()
		for name, at := range asked {
			times = append(times, float64(bound.at[name].Sub(at).Microseconds())/1000)
		}
		bound.mu.Unlock()
		slices.Sort(times)
		r.Open = append(r.Open, openResult{Rate: rate, P50: quantile(times, 0.5), P99: quantile(times, 0.99)})
		time.Sleep(2 * time.Second) // events go out, the limiter's tokens come back
	}
	return nil
}

func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}
