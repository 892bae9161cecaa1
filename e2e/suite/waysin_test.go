// SPDX-License-Identifier: Apache-2.0

package suite_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead-dev/fairlead/e2e/harness"
)

// kubectl works with the context that a way in writes into a kubeconfig: a list, exec, a
// followed log, port-forward, and cp where containers have files of their own. What the way in
// logs proves that the calls went through it. Its context is gone when it ends. The API server
// of a local cluster is on loopback, where "fairlead socks5" does not lead, so it is not among
// the ways here.
func TestKubectlThroughWaysIn(t *testing.T) {
	kubectl, err := suite.BuildKubectl(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, way := range []struct {
		name, context string
		args, log     []string
	}{
		{"proxy", "proxy-" + suite.Context(), []string{"proxy", "--port", "0", "--tls", "--reject-paths", ""}, []string{"/exec", "/log", "/portforward"}},
	} {
		run(t, "kubectl through fairlead "+way.name, 2*time.Minute, step{"logs, exec, port-forward, cp", func(ctx context.Context, t *testing.T) {
			file := filepath.Join(t.TempDir(), "config")
			end := writesContext(ctx, t, file, way.context, way.args...)
			k := func(ctx context.Context, t *testing.T, stdin string, args ...string) string {
				t.Helper()
				cmd, stdout, stderr := suite.Program(ctx, kubectl, append([]string{"--kubeconfig", file, "--context", way.context, "-n", harness.Namespace}, args...)...)
				cmd.Stdin = strings.NewReader(stdin)
				if err := cmd.Run(); err != nil {
					t.Errorf("kubectl %s: %v\n%s", strings.Join(args, " "), err, stderr)
				}
				return stdout.String()
			}
			if got := k(ctx, t, "", "get", "pods", "-o", "name"); !strings.Contains(got, "pod/"+harness.ServerName) {
				t.Errorf("get pods: %q", got)
			}
			if got := k(ctx, t, "in and out\n", append([]string{"exec", "-i", harness.ServerName, "--"}, suite.Tool("head", "-c", "11")...)...); got != "in and out\n" {
				t.Errorf("exec: %q", got)
			}
			followed, stop := context.WithTimeout(ctx, 5*time.Second)
			cmd, stdout, _ := suite.Program(followed, kubectl, "--kubeconfig", file, "--context", way.context, "-n", harness.Namespace, "logs", "-f", "--tail=1", harness.ServerName)
			_ = cmd.Run() // it ends with its time
			stop()
			if stdout.Len() == 0 {
				t.Error("the followed log is empty")
			}
			forwardThrough(ctx, t, kubectl, "--kubeconfig", file, "--context", way.context, "-n", harness.Namespace)
			if !suite.Simulated() {
				copyThrough(ctx, t, k)
			}
			wantText(t, "the log of fairlead "+way.name, end(), way.log...)
		}})
	}
}

// TestGateway: the gateway of the bundle carries only what is allowed.
func TestGateway(t *testing.T) {
	run(t, "gateway", 2*time.Minute, step{"verify", func(ctx context.Context, t *testing.T) {
		out, err := suite.Must(ctx, "verify", "--context", suite.Context(), "--only", "gateway-access")
		if err != nil {
			t.Error(err)
		}
		wantText(t, "the report", out, "gateway-access")
	}})
}

// writesContext runs a way in until end is called, which returns its log.
func writesContext(ctx context.Context, t *testing.T, file, name string, args ...string) (end func() string) {
	t.Helper()
	cmd, _, stderr := suite.Command(context.WithoutCancel(ctx), append(args, "--write-kubeconfig", file)...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := false
	end = func() string {
		if ended {
			return stderr.String()
		}
		ended = true
		_ = cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil {
			t.Errorf("fairlead %s: %v\n%s", args[0], err, stderr)
		}
		if config, err := clientcmd.LoadFromFile(file); err == nil && config.Contexts[name] != nil {
			t.Errorf("the context %s is still there", name)
		}
		return stderr.String()
	}
	t.Cleanup(func() { end() })
	for {
		if config, err := clientcmd.LoadFromFile(file); err == nil && config.Contexts[name] != nil {
			return end
		}
		select {
		case <-ctx.Done():
			t.Fatalf("fairlead %s wrote no context %s", args[0], name)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// forwardThrough sends data through kubectl port-forward and wants it back.
func forwardThrough(ctx context.Context, t *testing.T, kubectl string, flags ...string) {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd, _, stderr := suite.Program(ctx, kubectl, append(flags, "port-forward", "pod/"+harness.ServerName, ":7070")...)
	cmd.Stdout = nil
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cancel(); _ = cmd.Wait() }()
	line := make([]byte, 200)
	n, err := stdout.Read(line)
	address, ok := strings.CutPrefix(string(line[:n]), "Forwarding from ")
	if err != nil || !ok {
		t.Fatalf("port-forward says %q, %v\n%s", line[:n], err, stderr)
	}
	address, _, _ = strings.Cut(address, " ")
	if err := echo(ctx, address, randomBytes(4096)); err != nil {
		t.Errorf("port-forward: %v", err)
	}
}

// copyThrough copies a file into a container and back.
func copyThrough(ctx context.Context, t *testing.T, k func(context.Context, *testing.T, string, ...string) string) {
	t.Helper()
	there, back := filepath.Join(t.TempDir(), "there"), filepath.Join(t.TempDir(), "back")
	sent := randomBytes(mebibyte)
	if err := os.WriteFile(there, sent, 0o600); err != nil {
		t.Fatal(err)
	}
	in := harness.ServerName + ":/tmp/file"
	k(ctx, t, "", "cp", there, in)
	k(ctx, t, "", "cp", in, back)
	if got, err := os.ReadFile(back); err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%d bytes came back, sent %d: %v", len(got), len(sent), err)
	}
}
