// SPDX-License-Identifier: Apache-2.0

package suite_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/e2e/harness"
)

// The API, a Service, logs and exec are reached through "fairlead proxy". The first two
// steps are those of the conformance specs "Proxy server should support proxy with --port
// 0" and "... --unix-socket=/path".
// It observes HTTP-01 and HTTP-07 of docs/requirements.md.
// It also observes OLD-97 of docs/requirements.md.
func TestProxy(t *testing.T) {
	kubectl, err := suite.BuildKubectl(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	run(t, "fairlead proxy", 2*time.Minute,
		step{"with --port 0", func(ctx context.Context, t *testing.T) {
			address := startProxy(ctx, t, "-p", "0", "--disable-filter")
			_, port, err := net.SplitHostPort(address)
			if err != nil {
				t.Fatal(err)
			}
			wantVersions(t, http.DefaultClient, "http://localhost:"+port+"/api/")
		}},
		step{"with --unix-socket", func(ctx context.Context, t *testing.T) {
			path := filepath.Join(suite.Dir, "proxy.sock")
			startProxy(ctx, t, "--unix-socket="+path)
			client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "unix", path)
			}}}
			defer client.CloseIdleConnections()
			wantVersions(t, client, "http://localhost/api")
		}},
		step{"a Service", func(ctx context.Context, t *testing.T) {
			address := startProxy(ctx, t, "--port", "0")
			url := fmt.Sprintf("http://%s/api/v1/namespaces/%s/services/%s:http/proxy/healthz", address, harness.Namespace, harness.ServerName)
			wantText(t, url, fetch(ctx, t, url), "ok")
		}},
		step{"the hello application of the documentation", func(ctx context.Context, t *testing.T) {
			address := startProxy(ctx, t, "--port", "0")
			url := fmt.Sprintf("http://%s/api/v1/namespaces/%s/services/%s:8080/proxy/", address, harness.Namespace, helloApp(ctx, t))
			if out := fetch(ctx, t, url); !strings.HasPrefix(out, "Hello, world!\n") {
				t.Errorf("%s: %s", url, out)
			}
		}},
		step{"exec with kubectl beside the proxy", func(ctx context.Context, t *testing.T) {
			args := append([]string{"proxy", "--reject-paths", "", "--", kubectl, "-n", harness.Namespace, "exec", "-i", harness.ServerName, "--"}, suite.Tool("head", "-c", "11")...)
			cmd, stdout, stderr := suite.Command(ctx, args...)
			cmd.Stdin = strings.NewReader("in and out\n")
			if err := cmd.Run(); err != nil || stdout.String() != "in and out\n" {
				t.Errorf("exec: %q, %v\n%s", stdout, err, stderr)
			}
			cmd, stdout, stderr = suite.Command(ctx, append([]string{"proxy", "--", kubectl, "-n", harness.Namespace, "exec", harness.ServerName, "--"}, suite.Tool("say", "x")...)...)
			if err := cmd.Run(); err == nil || !strings.Contains(stderr.String(), "--reject-paths") {
				t.Errorf("the default filter lets exec through: %q, %v\n%s", stdout, err, stderr)
			}
		}},
		step{"a followed log with kubectl beside the proxy", func(ctx context.Context, t *testing.T) {
			cmd, _, stderr := suite.Command(ctx, "proxy", "--", kubectl, "-n", harness.Namespace, "logs", "-f", "--tail=1", harness.ServerName)
			cmd.Stdout = nil
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(stdout)
			for i := range 5 {
				if !lines.Scan() {
					t.Errorf("the log ended after %d lines: %v\n%s", i, lines.Err(), stderr)
					break
				}
			}
			// The signal reaches kubectl, and fairlead ends with it.
			_ = cmd.Process.Signal(syscall.SIGTERM)
			_, _ = io.Copy(io.Discard, stdout)
			_ = cmd.Wait()
			if code := cmd.ProcessState.ExitCode(); code != 128+int(syscall.SIGTERM) && code != 1 {
				t.Errorf("after SIGTERM: exit code %d\n%s", code, stderr)
			}
		}},
	)
}

// startProxy runs "fairlead proxy" for as long as the step and returns its address.
func startProxy(ctx context.Context, t *testing.T, args ...string) string {
	t.Helper()
	// The step's context ends before its cleanup, which ends the proxy in an orderly way.
	cmd, _, stderr := suite.Command(context.WithoutCancel(ctx), append([]string{"proxy"}, args...)...)
	cmd.Stdout = nil
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil {
			t.Errorf("the proxy ended with %v\n%s", err, stderr)
		}
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	address, ok := strings.CutPrefix(strings.TrimSpace(line), "Starting to serve on ")
	if err != nil || !ok {
		t.Fatalf("the proxy says %q, %v\n%s", line, err, stderr)
	}
	return address
}

// fetch returns what a client gets from a URL.
func fetch(ctx context.Context, t *testing.T, url string) string {
	t.Helper()
	command := append(client(t), url)
	out, err := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput()
	if err != nil {
		t.Errorf("%v: %v\n%s", command, err, out)
	}
	return string(out)
}

func wantVersions(t *testing.T, client *http.Client, url string) {
	t.Helper()
	resp, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var versions metav1.APIVersions
	if err := json.NewDecoder(resp.Body).Decode(&versions); err != nil || len(versions.Versions) < 1 {
		t.Errorf("%s: status %d, %+v, %v", url, resp.StatusCode, versions, err)
	}
}
