// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/fairlead-dev/fairlead/e2e/harness"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/e2e/bench/internal/goals"
)

const (
	// logLine is the size of a line of the log, and logLines is how many there are: fewer than the kubelet
	// rotates a log for.
	logLine, logLines = 1 << 10, 8 << 10
	// quickCalls and slowCalls are how many calls a run has; a quick call starts no process.
	quickCalls, slowCalls = 200, 20
)

// measure is one or more rows.
type measure struct {
	name string
	what []figure
	take func(context.Context, path) ([]float64, error)
}

// latency has a goal for the median, as users feel it; the 99th percentile of few calls is for the eye.
var latency = []figure{{"p50 ms", goals.Goal{AtMost: 1.1}}, {"p99 ms", goals.Goal{}}}

var throughput = []figure{{"MB/s", goals.Goal{AtLeast: 0.9}}}

func (b *bench) measures() []measure {
	return []measure{
		{"exec of a short command", latency, b.calls(slowCalls, b.exec)},
		{"exec, bytes there and back", throughput, b.rate(2, b.execBytes)},
		{"log, last 10 lines", latency, b.calls(quickCalls, b.tail)},
		{"log, whole", throughput, b.log},
		{"port-forward, connect and one echo", latency, b.calls(slowCalls, b.forward)},
		{"port-forward, bytes there and back", throughput, b.rate(2, b.forwardBytes)},
		{"cp to a Pod", throughput, b.rate(1, b.copyTo)},
		{"cp from a Pod", throughput, b.rate(1, b.copyFrom)},
		{"webhook, creating a ConfigMap", latency, b.calls(quickCalls, b.webhook)},
		{"aggregated API, get", latency, b.calls(quickCalls, b.aggregated)},
	}
}

// calls returns the median and the 99th percentile of the time of calls.
func (b *bench) calls(n int, call func(context.Context, path) error) func(context.Context, path) ([]float64, error) {
	return func(ctx context.Context, p path) ([]float64, error) {
		took := make([]float64, 0, n)
		for range n {
			start := time.Now()
			if err := call(ctx, p); err != nil {
				return nil, err
			}
			took = append(took, float64(time.Since(start).Microseconds())/1e3)
		}
		return []float64{goals.Quantile(took, 0.5), goals.Quantile(took, 0.99)}, nil
	}
}

// rate returns the MB/s of a transfer that moves the bytes once or twice.
func (b *bench) rate(times int, transfer func(context.Context, path) error) func(context.Context, path) ([]float64, error) {
	return func(ctx context.Context, p path) ([]float64, error) {
		start := time.Now()
		if err := transfer(ctx, p); err != nil {
			return nil, err
		}
		return []float64{float64(times*b.mebibytes<<20) / 1e6 / time.Since(start).Seconds()}, nil
	}
}

// prepare makes what the calls need.
func (b *bench) prepare(ctx context.Context, c *harness.Cluster) error {
	if err := c.Print(ctx, "bench", logLines, logLine); err != nil {
		return err
	}
	data := make([]byte, b.mebibytes<<20)
	_, _ = rand.Read(data)
	if err := os.WriteFile(filepath.Join(c.Dir, "data"), data, 0o600); err != nil {
		return err
	}
	if err := b.copyTo(ctx, b.paths[direct]); err != nil {
		return err
	}
	for _, register := range []func(context.Context, []byte) (func(context.Context) error, error){c.RegisterWebhook, c.RegisterAPI} {
		if _, err := register(ctx, b.ca); err != nil { // they go with the cluster
			return err
		}
	}
	for _, p := range b.paths { // each API server learns of both in a moment
		err := harness.Wait(ctx, time.Minute, "path "+p.name+" to reach the webhook and the aggregated API", func(ctx context.Context) error {
			object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "bench-", Labels: map[string]string{harness.DenyLabel: "true"}}}
			if _, err := p.cluster.Client.CoreV1().ConfigMaps(harness.Namespace).Create(ctx, object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err == nil {
				return fmt.Errorf("the webhook is not called")
			}
			return b.aggregated(ctx, p)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) exec(ctx context.Context, p path) error {
	return p.cluster.Exec(ctx, harness.ServerName, p.cluster.Tool("exit", "0"), harness.Streams{Stdout: io.Discard})
}

func (b *bench) execBytes(ctx context.Context, p path) error {
	data, err := os.ReadFile(filepath.Join(p.cluster.Dir, "data"))
	if err != nil {
		return err
	}
	var got counter
	err = p.cluster.Exec(ctx, harness.ServerName, p.cluster.Tool("copy", strconv.Itoa(len(data))), harness.Streams{Stdin: bytes.NewReader(data), Stdout: &got, Stderr: io.Discard})
	return got.want(err, len(data))
}

func (b *bench) tail(ctx context.Context, p path) error {
	return readLog(ctx, p, corev1.PodLogOptions{TailLines: new(int64(10))}, 1)
}

func (b *bench) log(ctx context.Context, p path) ([]float64, error) {
	start := time.Now()
	err := readLog(ctx, p, corev1.PodLogOptions{}, logLines*logLine)
	return []float64{float64(logLines*logLine) / 1e6 / time.Since(start).Seconds()}, err
}

// readLog reads a log of at least a size; the server also logs by itself.
func readLog(ctx context.Context, p path, o corev1.PodLogOptions, atLeast int) error {
	r, err := p.cluster.Logs(ctx, harness.ServerName, o)
	if err != nil {
		return err
	}
	defer r.Close()
	var got counter
	if _, err = io.Copy(&got, r); err == nil && int(got) < atLeast {
		err = fmt.Errorf("the log has %d bytes, want at least %d", int(got), atLeast)
	}
	return err
}

func (b *bench) forward(ctx context.Context, p path) error { return forwarded(ctx, p, []byte("x")) }

func (b *bench) forwardBytes(ctx context.Context, p path) error {
	data, err := os.ReadFile(filepath.Join(p.cluster.Dir, "data"))
	if err != nil {
		return err
	}
	return forwarded(ctx, p, data)
}

// forwarded sends bytes through port-forward and reads them back.
func forwarded(ctx context.Context, p path, data []byte) error {
	address, stop, err := p.cluster.Forward(ctx, harness.ServerName, harness.EchoPort)
	if err != nil {
		return err
	}
	defer stop()
	c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer c.Close()
	go func() { _, _ = c.Write(data) }()
	var got counter
	_, err = io.CopyN(&got, c, int64(len(data)))
	return got.want(err, len(data))
}

func (b *bench) copyTo(ctx context.Context, p path) error {
	return b.cp(ctx, p, filepath.Join(p.cluster.Dir, "data"), harness.ServerName+":/tmp/data")
}

func (b *bench) copyFrom(ctx context.Context, p path) error {
	return b.cp(ctx, p, harness.ServerName+":/tmp/data", filepath.Join(p.cluster.Dir, "back"))
}

func (b *bench) cp(ctx context.Context, p path, from, to string) error {
	out, err := exec.CommandContext(ctx, b.kubectl, "--kubeconfig", p.file, "-n", harness.Namespace, "cp", from, to).CombinedOutput()
	if err != nil {
		return fmt.Errorf("kubectl cp: %w: %s", err, out)
	}
	return nil
}

func (b *bench) webhook(ctx context.Context, p path) error {
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "bench-"}}
	_, err := p.cluster.Client.CoreV1().ConfigMaps(harness.Namespace).Create(ctx, object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

func (b *bench) aggregated(ctx context.Context, p path) error {
	result := p.cluster.Client.CoreV1().RESTClient().Get().AbsPath(harness.Whoami).Do(ctx)
	var code int
	if result.StatusCode(&code); code != http.StatusOK {
		return fmt.Errorf("status %d: %w", code, result.Error())
	}
	return nil
}

// counter counts the bytes that are written to it.
type counter int

// Write implements io.Writer.
func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

func (c *counter) want(err error, size int) error {
	if err == nil && int(*c) != size {
		err = fmt.Errorf("%d bytes arrived, want %d", int(*c), size)
	}
	return err
}
