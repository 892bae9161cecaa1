// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
)

// fakeAPIServer answers what a proxy's start and a small client ask, over real TLS, for
// those who have the token. It returns a kubeconfig with the context "test".
func fakeAPIServer(t *testing.T) (kubeconfig string) {
	t.Helper()
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Header.Get("Authorization") != "Bearer cluster-token" {
			http.Error(w, "not authenticated", http.StatusUnauthorized)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"APIVersions","versions":["v1"],"path":"` + req.URL.Path + `"}`))
	}))
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	config := clientcmdapi.NewConfig()
	config.Clusters["test"] = &clientcmdapi.Cluster{Server: s.URL, CertificateAuthorityData: ca}
	config.AuthInfos["test"] = &clientcmdapi.AuthInfo{Token: "cluster-token"}
	config.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "test", Namespace: "team"}
	config.CurrentContext = "test"
	path := filepath.Join(t.TempDir(), "config")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// ask makes a request with a kubeconfig's current context, or with the named one.
func ask(t *testing.T, path, context string) (string, error) {
	t.Helper()
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(&clientcmd.ClientConfigLoadingRules{ExplicitPath: path},
		&clientcmd.ConfigOverrides{CurrentContext: context}).ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	client.Timeout = bound
	resp, err := client.Get(config.Host + "/api")
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var body bytes.Buffer
	_, err = body.ReadFrom(resp.Body)
	return resp.Status + " " + body.String(), err
}

// run runs "fairlead proxy ... -- sh -c script".
func run(t *testing.T, kubeconfig, script string, flags ...string) (stdout, stderr string, code int) {
	t.Helper()
	args := append(append([]string{"proxy"}, flags...), "--", "sh", "-c", script)
	cmd := fairlead(t.Context(), kubeconfig, args...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	_ = cmd.Run() // the exit code tells
	return out.String(), errOut.String(), cmd.ProcessState.ExitCode()
}

// The command's output and exit code are those of fairlead. It gets a kubeconfig that only
// its user can read, which is gone afterwards with its directory.
func TestCommand(t *testing.T) {
	kubeconfig := fakeAPIServer(t)
	stdout, stderr, code := run(t, kubeconfig, `echo "$KUBECONFIG"; stat -c %a "$KUBECONFIG"; stat -c %a "$(dirname "$KUBECONFIG")"; exit 7`)
	lines := strings.Fields(stdout)
	if code != 7 || len(lines) != 3 || lines[1] != "600" || lines[2] != "700" || stderr != "" {
		t.Fatalf("exit code %d\n%s%s", code, stdout, stderr)
	}
	if _, err := os.Stat(filepath.Dir(lines[0])); !os.IsNotExist(err) {
		t.Errorf("%s stays: %v", filepath.Dir(lines[0]), err)
	}
	if _, _, code := run(t, kubeconfig, `kill -KILL $$`); code != 128+int(syscall.SIGKILL) {
		t.Errorf("a command ended by SIGKILL: exit code %d", code)
	}
	cmd := fairlead(t.Context(), kubeconfig, "proxy", "--", "/no/such/command")
	if out, err := cmd.CombinedOutput(); err == nil || cmd.ProcessState.ExitCode() != 127 || !strings.Contains(string(out), "/no/such/command") {
		t.Errorf("a command that does not exist: %v\n%s", err, out)
	}
}

// The command's kubeconfig leads to the API server; the proxy rejects other users of the
// machine, who do not have its token.
func TestCommandReachesAPI(t *testing.T) {
	kubeconfig, copied := fakeAPIServer(t), filepath.Join(t.TempDir(), "copied")
	cmd := fairlead(t.Context(), kubeconfig, "proxy", "--", "sh", "-c", `cp "$KUBECONFIG" "$0.part" && mv "$0.part" "$0" && exec cat`, copied)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, copied)
	if got, err := ask(t, copied, ""); err != nil || !strings.HasPrefix(got, "200 ") || !strings.Contains(got, `"path":"/api"`) {
		t.Errorf("with the command's kubeconfig: %q, %v", got, err)
	}
	config, err := clientcmd.LoadFromFile(copied)
	if err != nil {
		t.Fatal(err)
	}
	if c := config.Contexts[config.CurrentContext]; c == nil || c.Namespace != "team" {
		t.Errorf("the context is %+v", c)
	}
	for _, user := range config.AuthInfos {
		user.Token = "guessed"
	}
	if err := clientcmd.WriteToFile(*config, copied); err != nil {
		t.Fatal(err)
	}
	if got, err := ask(t, copied, ""); err != nil || !strings.HasPrefix(got, "401 ") {
		t.Errorf("with another token: %q, %v", got, err)
	}
	_ = stdin.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if _, err := ask(t, copied, ""); err == nil {
		t.Error("the proxy outlived its command")
	}
}

// A signal reaches the command, which has time to end as it likes; fairlead ends with it.
func TestCommandSignals(t *testing.T) {
	kubeconfig, ready := fakeAPIServer(t), filepath.Join(t.TempDir(), "ready")
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGUSR1} {
		_ = os.Remove(ready)
		script := `trap 'sleep 0.2; echo trapped; exit 5' TERM INT HUP USR1; : > "$0"; for i in $(seq 1200); do sleep 0.05; done`
		ctx, cancel := context.WithTimeout(t.Context(), bound)
		cmd := fairlead(ctx, kubeconfig, "proxy", "--", "sh", "-c", script, ready)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // no terminal, so that only fairlead gets the signal
		var out bytes.Buffer
		cmd.Stdout = &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		waitFor(t, ready)
		if err := cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
		if signal.Ignored(s) { // by this test, as under nohup, and so by all that it starts: another signal ends the command
			time.Sleep(200 * time.Millisecond) // in which the signal must not end it
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Errorf("%v is ignored, and ended fairlead: %v", s, err)
			}
		}
		_ = cmd.Wait() // the exit code tells
		cancel()
		if code := cmd.ProcessState.ExitCode(); code != 5 || out.String() != "trapped\n" {
			t.Errorf("%v: exit code %d, output %q", s, code, out.String())
		}
	}
}

func waitFor(t *testing.T, path string) {
	t.Helper()
	daemontest.Eventually(t, bound, func() error {
		_, err := os.Stat(path)
		return err
	})
}

// The context of --write-kubeconfig works while the proxy runs, over HTTP and with --tls,
// and the file is as before when SIGTERM has ended it.
func TestWriteKubeconfig(t *testing.T) {
	for _, flags := range [][]string{nil, {"--tls"}} {
		kubeconfig := fakeAPIServer(t)
		before, err := os.ReadFile(kubeconfig)
		if err != nil {
			t.Fatal(err)
		}
		p := start(t, kubeconfig, append([]string{"--port", "0", "--write-kubeconfig", kubeconfig}, flags...)...)
		if got, err := ask(t, kubeconfig, "proxy-test"); err != nil || !strings.HasPrefix(got, "200 ") {
			t.Errorf("%v: %q, %v", flags, got, err)
		}
		if err := p.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if code := p.code(t); code != 0 {
			t.Errorf("%v: exit code %d", flags, code)
		}
		if after, err := os.ReadFile(kubeconfig); err != nil || !bytes.Equal(before, after) {
			t.Errorf("%v: the file is now\n%s%v", flags, after, err)
		}
	}
}

// TestWriteKubeconfigTwoRuns: the context of a proxy that runs is not replaced by another proxy, that of a killed one is. Beside
// each other, under names of their own, both leave the rest of the file as it was.
func TestWriteKubeconfigTwoRuns(t *testing.T) {
	kubeconfig := fakeAPIServer(t)
	args := []string{"--port", "0", "--write-kubeconfig", kubeconfig}
	first := start(t, kubeconfig, args...)
	out, err := fairlead(t.Context(), kubeconfig, append([]string{"proxy"}, args...)...).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "--context-name") || !strings.Contains(string(out), "which still runs") {
		t.Errorf("a second proxy: %v\n%s", err, out)
	}
	if config, err := clientcmd.LoadFromFile(kubeconfig); err != nil || !strings.HasSuffix(config.Clusters["proxy-test"].Server, first.address) {
		t.Errorf("the context leads to %+v, %v, want %s", config.Clusters["proxy-test"], err, first.address)
	}
	_ = first.Process.Kill()
	first.code(t)
	second := start(t, kubeconfig, args...)
	third := start(t, kubeconfig, append(args, "--context-name", "other")...)
	for name, p := range map[string]*process{"proxy-test": second, "other": third} {
		if got, err := ask(t, kubeconfig, name); err != nil || !strings.HasPrefix(got, "200 ") {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		if config, err := clientcmd.LoadFromFile(kubeconfig); err != nil || !strings.HasSuffix(config.Clusters[name].Server, p.address) {
			t.Errorf("the context %s leads to %+v, %v, want %s", name, config.Clusters[name], err, p.address)
		}
	}
	for _, p := range []*process{second, third} {
		if err := p.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if code := p.code(t); code != 0 {
			t.Errorf("exit code %d", code)
		}
	}
	config, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil || len(config.Contexts) != 1 || len(config.Clusters) != 1 || len(config.AuthInfos) != 1 || config.AuthInfos["test"].Token != "cluster-token" || config.CurrentContext != "test" {
		t.Errorf("after all have ended, the kubeconfig is %+v, %v", config, err)
	}
}

// TestWriteKubeconfigOverlapping: the file means what it did before after the last of two proxies, in whatever order they end, and
// has its comments if the first one ends last.
func TestWriteKubeconfigOverlapping(t *testing.T) {
	for _, order := range [][]int{{0, 1}, {1, 0}} {
		kubeconfig := fakeAPIServer(t)
		before, err := os.ReadFile(kubeconfig)
		if err != nil {
			t.Fatal(err)
		}
		before = append([]byte("# my clusters\n"), before...)
		if err := os.WriteFile(kubeconfig, before, 0o600); err != nil {
			t.Fatal(err)
		}
		args := []string{"--port", "0", "--write-kubeconfig", kubeconfig}
		proxies := []*process{start(t, kubeconfig, args...), start(t, kubeconfig, append(args, "--context-name", "other")...)}
		for _, i := range order {
			if err := proxies[i].Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if code := proxies[i].code(t); code != 0 {
				t.Errorf("order %v: exit code %d", order, code)
			}
		}
		after, err := os.ReadFile(kubeconfig)
		if err != nil || order[0] == 1 && !bytes.Equal(before, after) {
			t.Errorf("order %v: the file is now\n%s%v", order, after, err)
		}
		want, err1 := clientcmd.Load(before)
		got, err2 := clientcmd.Load(after)
		if err1 != nil || err2 != nil || !equality.Semantic.DeepEqual(want, got) {
			t.Errorf("order %v: the file is now\n%s%v %v", order, after, err1, err2)
		}
	}
}

// TestWriteKubeconfigTwoSignals: a user who presses Ctrl-C again while a stream drains ends the
// proxy at once, and the kubeconfig is as before by then.
func TestWriteKubeconfigTwoSignals(t *testing.T) {
	kubeconfig := slowAPIServer(t)
	before, err := os.ReadFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	p := start(t, kubeconfig, "--port", "0", "--write-kubeconfig", kubeconfig)
	watch, err := (&http.Client{Timeout: bound}).Get("http://" + p.address + "/api/v1/pods?watch=true")
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Body.Close()
	if during, err := os.ReadFile(kubeconfig); err != nil || bytes.Equal(before, during) {
		t.Fatalf("no context was written, %v", err)
	}
	if err := p.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	same := func() bool {
		now, err := os.ReadFile(kubeconfig)
		return err == nil && bytes.Equal(before, now)
	}
	daemontest.Eventually(t, bound/2, func() error {
		if !same() {
			return errors.New("the context stays while a stream drains")
		}
		return nil
	})
	if err := p.Process.Signal(os.Interrupt); err != nil {
		t.Fatalf("the proxy did not wait for the stream: %v", err)
	}
	if code := p.code(t); code == 0 {
		t.Error("the second signal did not end the proxy")
	}
	if !same() {
		t.Error("the kubeconfig was changed")
	}
}

// kubectl is a client as any other.
func TestCommandKubectl(t *testing.T) {
	kubectl := daemontest.Components(t, "kubectl")["kubectl"]
	stdout, stderr, code := run(t, fakeAPIServer(t), kubectl+" get --raw /api/v1/x")
	if code != 0 || !strings.Contains(stdout, `"path":"/api/v1/x"`) {
		t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
	}
}
