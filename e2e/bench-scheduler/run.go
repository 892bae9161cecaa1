package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// result is one run.
type result struct {
	Nodes      int    `json:"nodes"`
	Workload   string `json:"workload"`
	Scheduler  string `json:"scheduler"`
	Repetition int    `json:"repetition"`

	// Pods of the burst, from the first binding to the last one.
	Pods            int     `json:"pods"`
	PodsPerSecond   float64 `json:"podsPerSecond"`
	CPUMillisPerPod float64 `json:"cpuMillisPerPod"`
	// PeakMiB is the scheduler's largest resident set over the whole run.
	PeakMiB float64 `json:"peakMiB"`
	// NodesUsed by the burst.
	NodesUsed int `json:"nodesUsed"`
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

func (r *result) openText() string {
	var parts []string
	for _, o := range r.Open {
		parts = append(parts, fmt.Sprintf("%d/s p99 %.0f ms", o.Rate, o.P99))
	}
	if r.Workload == mixed {
		parts = append(parts, fmt.Sprintf("%d nodes used", r.NodesUsed))
	}
	if r.HintsUsed > 0 {
		parts = append(parts, fmt.Sprintf("%.0f hints used", r.HintsUsed))
	}
	return strings.Join(parts, ", ")
}

// bindings are when and where pods were bound, as a watch sees it.
type bindings struct {
	mu    sync.Mutex
	at    map[string]time.Time
	nodes map[string]string
	cond  chan struct{}
}

func watchBindings(ctx context.Context, client kubernetes.Interface) (*bindings, error) {
	b := &bindings{at: map[string]time.Time{}, nodes: map[string]string{}, cond: make(chan struct{}, 1)}
	// An informer, because the API server ends the watch of a client that was slow for a moment.
	informer := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.FieldSelector = "spec.nodeName!=" })).Core().V1().Pods().Informer()
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(obj any) {
		if pod, ok := obj.(*corev1.Pod); ok {
			b.add(pod)
		}
	}}); err != nil {
		return nil, err
	}
	go informer.Run(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return nil, ctx.Err()
	}
	return b, nil
}

func (b *bindings) add(pod *corev1.Pod) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, seen := b.at[pod.Name]; !seen {
		b.at[pod.Name], b.nodes[pod.Name] = time.Now(), pod.Spec.NodeName
		select {
		case b.cond <- struct{}{}:
		default:
		}
	}
}

func (b *bindings) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.at)
}

// wait returns when n pods are bound.
func (b *bindings) wait(ctx context.Context, n int, limit time.Duration) error {
	timeout := time.After(limit)
	for b.count() < n {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timeout:
			return fmt.Errorf("only %d of %d pods were bound within %s", b.count(), n, limit)
		case <-b.cond:
		}
	}
	return nil
}

// measure makes one run: a control plane, nodes, a burst that waits for the scheduler, then the open loops.
func measure(ctx context.Context, programs map[string]string, c contender, nodes int, o options) (*result, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cp, err := startControlPlane(ctx, programs)
	if err != nil {
		return nil, err
	}
	defer cp.stop()
	pods := podCount(c.workload, nodes)
	if err := createNodes(ctx, cp.client, nodes); err != nil {
		return nil, fmt.Errorf("create nodes: %w", err)
	}
	if err := createServices(ctx, cp.client); err != nil {
		return nil, fmt.Errorf("create services: %w", err)
	}
	if err := createBurst(ctx, cp.client, c, pods); err != nil {
		return nil, fmt.Errorf("create pods: %w", err)
	}
	bound, err := watchBindings(ctx, cp.client)
	if err != nil {
		return nil, err
	}
	scheduler, port, err := startScheduler(ctx, cp, programs[c.program], c)
	if err != nil {
		return nil, err
	}
	defer scheduler.stop()
	r := &result{Nodes: nodes, Workload: c.workload, Scheduler: c.name, Pods: pods}
	if err := r.burst(ctx, bound, scheduler); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, tail(scheduler.log))
	}
	if c.workload == services {
		if err := r.openLoops(ctx, cp, c, bound, o); err != nil {
			return nil, err
		}
	}
	if r.HintsUsed, err = hintsUsed(ctx, port); err != nil {
		return nil, err
	}
	r.PeakMiB, err = peakMiB(scheduler.cmd.Process.Pid)
	return r, err
}

func startScheduler(ctx context.Context, cp *controlPlane, path string, c contender) (*program, string, error) {
	data, err := c.config(cp.kubeconfig)
	if err != nil {
		return nil, "", err
	}
	file := filepath.Join(cp.dir, "scheduler.yaml")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		return nil, "", err
	}
	ports, err := freePorts(ctx, 1)
	if err != nil {
		return nil, "", err
	}
	p, err := start(ctx, cp.dir, path, "--config="+file, "--bind-address=127.0.0.1", "--secure-port="+ports[0], "--cert-dir="+cp.dir,
		"--authentication-kubeconfig="+cp.kubeconfig, "--authorization-kubeconfig="+cp.kubeconfig)
	return p, ports[0], err
}

func (r *result) burst(ctx context.Context, bound *bindings, scheduler *program) error {
	if err := bound.wait(ctx, 1, patience); err != nil {
		return err
	}
	first, before := time.Now(), cpuMillis(scheduler.cmd.Process.Pid)
	already := bound.count()
	if err := bound.wait(ctx, r.Pods, 5*time.Minute); err != nil {
		return err
	}
	seconds := time.Since(first).Seconds()
	counted := float64(r.Pods - already)
	r.PodsPerSecond = counted / seconds
	r.CPUMillisPerPod = (cpuMillis(scheduler.cmd.Process.Pid) - before) / counted
	used := map[string]bool{}
	bound.mu.Lock()
	defer bound.mu.Unlock()
	for _, node := range bound.nodes {
		used[node] = true
	}
	r.NodesUsed = len(used)
	return nil
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

// cpuMillis is the CPU time that a process has used, in user and kernel mode.
func cpuMillis(pid int) float64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The name, in parentheses, may hold blanks; utime and stime are the 12th and 13th field after it, in ticks of 10 ms.
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	user, _ := strconv.ParseFloat(fields[11], 64)
	system, _ := strconv.ParseFloat(fields[12], 64)
	return (user + system) * 10
}

func peakMiB(pid int) (float64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "VmHWM:" {
			kib, err := strconv.ParseFloat(fields[1], 64)
			return kib / 1024, err
		}
	}
	return 0, fmt.Errorf("no VmHWM of process %d", pid)
}

// hintsUsed reads scheduler_batch_attempts_total{result="hint_used"}.
func hintsUsed(ctx context.Context, port string) (float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://127.0.0.1:"+port+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // the scheduler's own, on loopback
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("metrics: %s", resp.Status)
	}
	var sum float64
	lines := bufio.NewScanner(io.LimitReader(resp.Body, 64<<20))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if strings.HasPrefix(line, "scheduler_batch_attempts_total{") && strings.Contains(line, `result="hint_used"`) {
			value, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
			if err != nil {
				return 0, err
			}
			sum += value
		}
	}
	return sum, lines.Err()
}

func tail(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(data[max(0, len(data)-2000):])
}
