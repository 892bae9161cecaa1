// SPDX-License-Identifier: Apache-2.0

package suite_test

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/e2e/harness"
	"github.com/fairlead-dev/fairlead/internal/testutil"
)

// The kubectl commands of the README work.
func TestKubectl(t *testing.T) {
	testutil.Full(t, "TestDocs runs kubectl as the quick start does")
	path, err := suite.BuildKubectl(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	k := func(ctx context.Context, t *testing.T, stdin string, args ...string) string {
		t.Helper()
		out, err := suite.Kubectl(ctx, path, stdin, args...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	serve := []string{"--command", "--", "/testpod", "serve"}
	run(t, "kubectl", 2*time.Minute,
		step{"the context is the current one", func(ctx context.Context, t *testing.T) {
			if got := strings.TrimSpace(k(ctx, t, "", "config", "current-context")); got != suite.Context() {
				t.Errorf("current context %q, want %q", got, suite.Context())
			}
		}},
		step{"run a Pod with the second scheduler", func(ctx context.Context, t *testing.T) {
			args := []string{"run", "hello", "--image=" + harness.Image, "--image-pull-policy=Never", `--overrides={"spec": {"schedulerName": "my-scheduler"}}`}
			k(ctx, t, "", append(args, serve...)...)
			k(ctx, t, "", "wait", "--for=condition=Ready", "pod/hello", "--timeout=60s")
			if got := k(ctx, t, "", "get", "events", "-o", "wide", "--field-selector", "reason=Scheduled,involvedObject.name=hello"); !strings.Contains(got, "my-scheduler") {
				t.Errorf("events do not name the scheduler:\n%s", got)
			}
		}},
		step{"logs", func(ctx context.Context, t *testing.T) {
			want := "testpod serves"
			if suite.Simulated() { // all Pods have one log
				want = "simulated node"
			}
			if got := k(ctx, t, "", "logs", "hello"); !strings.Contains(got, want) {
				t.Errorf("logs: %.200q", got)
			}
		}},
		step{"exec", func(ctx context.Context, t *testing.T) {
			if got := k(ctx, t, "", append([]string{"exec", "hello", "--"}, suite.Tool("say", "it works")...)...); got != "it works\n" {
				t.Errorf("exec: %q", got)
			}
			if got := k(ctx, t, "in and out\n", append([]string{"exec", "-i", "hello", "--"}, suite.Tool("head", "-c", "11")...)...); got != "in and out\n" {
				t.Errorf("exec -i: %q", got)
			}
		}},
		step{"cp both ways", func(ctx context.Context, t *testing.T) { copyFiles(ctx, t, k) }},
		step{"port-forward", func(ctx context.Context, t *testing.T) { kubectlForward(ctx, t, path) }},
		step{"delete", func(ctx context.Context, t *testing.T) { k(ctx, t, "", "delete", "pod", "hello", "--wait=true") }},
	)
}

// copyFiles needs a container with files of its own: a simulated node has none,
// and would unpack the files on this machine.
func copyFiles(ctx context.Context, t *testing.T, k func(context.Context, *testing.T, string, ...string) string) {
	if suite.Simulated() {
		return
	}
	dir := t.TempDir()
	there, back := filepath.Join(dir, "there"), filepath.Join(dir, "back")
	sent := randomBytes(8 * mebibyte)
	if err := os.WriteFile(there, sent, 0o600); err != nil {
		t.Fatal(err)
	}
	k(ctx, t, "", "cp", there, "default/hello:/tmp/file")
	if got := k(ctx, t, "", append([]string{"exec", "hello", "--"}, suite.Tool("sum", "/tmp/file")...)...); strings.TrimSpace(got) != sumOf(sent) {
		t.Errorf("in the Pod the file has SHA-256 %s, want %s", got, sumOf(sent))
	}
	k(ctx, t, "", "cp", "default/hello:/tmp/file", back)
	if got, err := os.ReadFile(back); err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%d bytes came back, sent %d: %v", len(got), len(sent), err)
	}
}

// kubectlForward sends data through kubectl port-forward and wants it back.
func kubectlForward(ctx context.Context, t *testing.T, path string) {
	ctx, cancel := context.WithCancel(ctx)
	cmd, _, stderr := suite.Program(ctx, path, "port-forward", "pod/hello", ":7070")
	cmd.Stdout = nil
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cancel(); _ = cmd.Wait() }()
	line, err := bufio.NewReader(stdout).ReadString('\n')
	address, ok := strings.CutPrefix(strings.TrimSpace(line), "Forwarding from ")
	if err != nil || !ok {
		t.Fatalf("port-forward says %q, %v\n%s", line, err, stderr.String())
	}
	address, _, _ = strings.Cut(address, " ")
	if err := echo(ctx, address, randomBytes(4096)); err != nil {
		t.Errorf("port-forward: %v", err)
	}
}
