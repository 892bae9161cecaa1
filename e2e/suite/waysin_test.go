// SPDX-License-Identifier: Apache-2.0

package suite_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fairlead-dev/fairlead/e2e/harness"
	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/gateway/sshdtest"
)

// kubectl works with the context that a way in writes into a kubeconfig: a list, exec, a
// followed log, port-forward, and cp where containers have files of their own. What the way in
// logs proves that the calls went through it. Its context is gone when it ends.
// It observes HTTP-08, SOCKS-01, SOCKS-07 and SOCKS-11 of docs/requirements.md.
// It also observes OLD-100 of docs/requirements.md.
func TestKubectlThroughWaysIn(t *testing.T) {
	testutil.Full(t, "TestProxy and TestSOCKS5 show the main path")
	ways := []wayIn{{
		name: "proxy", context: "proxy-" + suite.Context(),
		args: []string{"proxy", "--port", "0", "--tls", "--reject-paths", ""},
		log:  []string{"/exec", "/attach", "/log", "/portforward"},
	}}
	ways = append(ways, socks5Way(t, "socks5", nil, "--via", "network"))
	for _, way := range ways {
		way.try(t)
	}
}

// TestKubectlThroughBastion is TestKubectlThroughWaysIn with a real sshd before the API server.
// It observes SOCKS-01, SOCKS-02 and SOCKS-04 of docs/requirements.md.
func TestKubectlThroughBastion(t *testing.T) {
	testutil.Full(t, "needs an sshd")
	b := sshdtest.New(t)
	env := []string{"HOME=" + b.Home, "SSH_AUTH_SOCK="}
	socks5Way(t, "socks5 behind a bastion", env, "--via", "ssh="+b.Target).try(t)
	wayIn{
		name: "proxy behind a bastion", context: "proxy-" + suite.Context(),
		args: []string{"proxy", "--port", "0", "--tls", "--reject-paths", "", "--via", "ssh=" + b.Target, "--kubeconfig", suite.Kubeconfig()},
		env:  env, log: []string{"/exec", "/attach", "/log", "/portforward"},
	}.try(t)
}

// TestBastionForwardsNothing: a bastion that forbids forwarding carries nothing of "fairlead socks5",
// which shows that all of it goes through the bastion, and the error names the setting.
// It observes SOCKS-04 of docs/requirements.md.
func TestBastionForwardsNothing(t *testing.T) {
	testutil.Full(t, "needs an sshd")
	b := sshdtest.New(t, "AllowTcpForwarding no")
	run(t, "fairlead socks5 behind a closed bastion", time.Minute, step{"is refused", func(ctx context.Context, t *testing.T) {
		cmd, stdout, stderr := suite.Command(ctx, "socks5", "--listen", "127.0.0.1:0", "--via", "ssh="+b.Target, "--kubeconfig", suite.Kubeconfig(), "--", "true")
		cmd.Env = append(cmd.Env, "HOME="+b.Home, "SSH_AUTH_SOCK=")
		if err := cmd.Run(); err == nil {
			t.Errorf("it serves: %s", stdout)
		}
		wantText(t, "the error", stderr.String(), "AllowTcpForwarding")
	}})
}

// wayIn is a command that writes a context for kubectl, and what its log then has.
type wayIn struct {
	name, context  string
	args, env, log []string
	// reach, if not nil, changes the cluster of the context so that the way leads to it.
	reach func(context.Context, *testing.T, *clientcmdapi.Cluster)
}

func (way wayIn) try(t *testing.T) {
	t.Helper()
	kubectl, err := suite.BuildKubectl(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	run(t, "kubectl through fairlead "+way.name, 2*time.Minute, step{"logs, exec, attach, port-forward, cp", func(ctx context.Context, t *testing.T) {
		file := filepath.Join(t.TempDir(), "config")
		end := way.writesContext(ctx, t, file)
		if way.reach != nil {
			config, err := clientcmd.LoadFromFile(file)
			if err != nil {
				t.Fatal(err)
			}
			way.reach(ctx, t, config.Clusters[config.Contexts[way.context].Cluster])
			if err := clientcmd.WriteToFile(*config, file); err != nil {
				t.Fatal(err)
			}
		}
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
		followed, stop := context.WithTimeout(ctx, 30*time.Second)
		cmd, _, _ := suite.Program(followed, kubectl, "--kubeconfig", file, "--context", way.context, "-n", harness.Namespace, "logs", "-f", "--tail=1", harness.ServerName)
		first := &firstByte{then: stop}
		cmd.Stdout = first
		_ = cmd.Run() // it ends with its time, or with the first byte
		stop()
		if !first.seen {
			t.Error("the followed log is empty")
		}
		attachThrough(ctx, t, kubectl, "--kubeconfig", file, "--context", way.context, "-n", harness.Namespace)
		forwardThrough(ctx, t, kubectl, "--kubeconfig", file, "--context", way.context, "-n", harness.Namespace)
		if !suite.Simulated() {
			copyThrough(ctx, t, k)
		}
		wantText(t, "the log of fairlead "+way.name, end(), way.log...)
	}})
}

// firstByte waits for an output to begin.
type firstByte struct {
	then func()
	seen bool
}

func (b *firstByte) Write(p []byte) (int, error) {
	if len(p) > 0 && !b.seen {
		b.seen = true
		b.then()
	}
	return len(p), nil
}

// writesContext runs a way in until end is called, which returns its log.
func (way wayIn) writesContext(ctx context.Context, t *testing.T, file string) (end func() string) {
	t.Helper()
	cmd, _, stderr := suite.Command(context.WithoutCancel(ctx), slices.Concat(way.args, []string{"--write-kubeconfig", file})...)
	cmd.Env = slices.Concat(cmd.Env, way.env)
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
			t.Errorf("fairlead %s: %v\n%s", way.name, err, stderr)
		}
		if config, err := clientcmd.LoadFromFile(file); err == nil && config.Contexts[way.context] != nil {
			t.Errorf("the context %s is still there", way.context)
		}
		return stderr.String()
	}
	t.Cleanup(func() { end() })
	if err := harness.Wait(ctx, time.Minute, "context "+way.context, func(context.Context) error {
		config, err := clientcmd.LoadFromFile(file)
		if err == nil && config.Contexts[way.context] == nil {
			err = errors.New("it has no such context")
		}
		return err
	}); err != nil {
		t.Fatalf("fairlead %s: %v\n%s", way.name, err, end())
	}
	return end
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

// attachThrough attaches to the suite's server, which writes lines all the time.
func attachThrough(ctx context.Context, t *testing.T, kubectl string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	cmd, _, stderr := suite.Program(ctx, kubectl, append(args, "attach", harness.ServerName)...)
	cmd.Stdout = nil
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines, ticks := bufio.NewScanner(stdout), 0
	for ticks < 3 && lines.Scan() {
		if strings.HasPrefix(lines.Text(), "tick ") {
			ticks++
		}
	}
	cancel()
	_, _ = io.Copy(io.Discard, stdout)
	_ = cmd.Wait()
	if ticks < 3 {
		t.Errorf("attach shows %d ticks: %v\n%s", ticks, lines.Err(), stderr)
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
