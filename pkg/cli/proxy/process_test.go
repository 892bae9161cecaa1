// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// bound is for steps that take milliseconds on an idle machine.
const bound = time.Minute

// output is a buffer that a process writes into and a test reads.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// process is a running "fairlead proxy".
type process struct {
	*exec.Cmd
	address string
	stderr  output
	exited  chan struct{}
}

// fairlead prepares the program with arguments and a kubeconfig.
func fairlead(ctx context.Context, kubeconfig string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(os.Environ(), asFairlead+"=1", "KUBECONFIG="+kubeconfig)
	return cmd
}

// start runs "fairlead proxy" until it serves, and ends it with the test.
func start(t *testing.T, kubeconfig string, args ...string) *process {
	t.Helper()
	p := &process{Cmd: fairlead(context.Background(), kubeconfig, append([]string{"proxy"}, args...)...), exited: make(chan struct{})}
	p.Stderr = &p.stderr
	stdout, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	go func() { _, _ = io.Copy(io.Discard, stdout); _ = p.Wait(); close(p.exited) }()
	t.Cleanup(func() {
		_ = p.Process.Kill()
		<-p.exited
		if t.Failed() {
			t.Logf("fairlead %v:\n%s", args, p.stderr.String())
		}
	})
	var ok bool
	if p.address, ok = strings.CutPrefix(strings.TrimSpace(line), "Starting to serve on "); !ok {
		t.Fatalf("the first line is %q, %v\n%s", line, err, p.stderr.String())
	}
	return p
}

// code waits for the end of the process and returns its exit code.
func (p *process) code(t *testing.T) int {
	t.Helper()
	select {
	case <-p.exited:
	case <-time.After(bound):
		t.Fatal("the proxy still runs")
	}
	return p.ProcessState.ExitCode()
}

// get asks the proxy for a path, over TCP or a Unix socket.
func (p *process) get(t *testing.T, path string) (status int, body string) {
	t.Helper()
	client := http.Client{Timeout: bound, Transport: &http.Transport{DisableKeepAlives: true}}
	host := p.address
	if strings.HasPrefix(host, "/") {
		host = "localhost"
		client.Transport = &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", p.address)
		}}
	}
	resp, err := client.Get("http://" + host + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(data)
}
