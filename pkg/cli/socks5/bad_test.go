// SPDX-License-Identifier: Apache-2.0

package socks5_test

import (
	"bytes"
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fairlead-dev/fairlead/pkg/cli"
	"github.com/fairlead-dev/fairlead/pkg/cli/socks5"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
	"github.com/fairlead-dev/fairlead/pkg/gateway/sshdtest"
)

// asFairlead makes this test binary the program fairlead, so that signals and exit codes are those
// of a real process.
const asFairlead = "SOCKS5_TEST_AS_FAIRLEAD"

func TestMain(m *testing.M) {
	if os.Getenv(asFairlead) != "" {
		_ = os.Unsetenv(asFairlead)
		os.Exit(cli.Main(os.Args[1:], genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}))
	}
	if page := os.Getenv(socks5.AsClient); page != "" {
		os.Exit(socks5.GetPage(page))
	}
	os.Exit(daemontest.RunParallel(m, 8))
}

// bound is for steps that take milliseconds on an idle machine.
const bound = time.Minute

// apiServer answers each request, over real TLS, and returns a kubeconfig with the context "test".
func apiServer(t *testing.T) (kubeconfig string) {
	t.Helper()
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"APIVersions","versions":["v1"]}`))
	}))
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	config := clientcmdapi.NewConfig()
	config.Clusters["test"] = &clientcmdapi.Cluster{Server: s.URL, CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})}
	config.AuthInfos["test"] = &clientcmdapi.AuthInfo{Token: "cluster-canary"}
	config.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "test"}
	config.CurrentContext = "test"
	return written(t, config)
}

func written(t *testing.T, config *clientcmdapi.Config) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// changed is a kubeconfig like another one.
func changed(t *testing.T, kubeconfig string, change func(*clientcmdapi.Config)) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	change(config)
	return written(t, config)
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func fairlead(t *testing.T, kubeconfig string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], append([]string{"socks5"}, args...)...)
	cmd.Env = append(os.Environ(), asFairlead+"=1", "KUBECONFIG="+kubeconfig)
	return cmd
}

// Bad input is refused at once, with what is wrong and what to do. No error repeats a password,
// and the kubeconfig into which a context was to be written is byte for byte as it was.
func TestBadInput(t *testing.T) {
	kubeconfig, dir := apiServer(t), t.TempDir()
	bastion := sshdtest.New(t)
	t.Setenv("HOME", bastion.Home)
	t.Setenv("SSH_AUTH_SOCK", "")
	bastion.Stop()
	bastion.ChangeHostKey()
	bastion.Start()
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	none := filepath.Join(dir, "none")
	proxied := func(url string) string {
		return changed(t, kubeconfig, func(c *clientcmdapi.Config) { c.Clusters["test"].ProxyURL = url })
	}
	for _, tt := range []struct {
		want, kubeconfig string
		args             []string
	}{
		{`no context "none" in the kubeconfig`, "", []string{"--context", "none"}},
		{"has no current context", changed(t, kubeconfig, func(c *clientcmdapi.Config) { c.CurrentContext = "" }), nil},
		{"create a cluster with `fairlead up`", none, nil},
		{`context "test" is for the cluster "gone"`, changed(t, kubeconfig, func(c *clientcmdapi.Config) { c.Contexts["test"].Cluster = "gone" }), nil},
		{"the API server", changed(t, kubeconfig, func(c *clientcmdapi.Config) {
			c.Clusters["test"].Server = "https://127.0.0.1:" + daemontest.Ports(t, 1)[0]
		}), nil},
		{"port 0 picks a free one", "", []string{"--listen", taken.Addr().String()}},
		{"choose another address", "", []string{"--metrics-address", taken.Addr().String()}},
		{"set --tls-cert and --tls-key", "", []string{"--listen", "192.0.2.1:0"}},
		{"missing port", "", []string{"--listen", "127.0.0.1"}},
		{"connection refused: check the address and that its sshd runs", "", []string{"--via", "ssh=me@127.0.0.1:" + daemontest.Ports(t, 1)[0]}},
		{"ask who runs the bastion; only if its key was replaced, run: ssh-keygen -R", "", []string{"--via", "ssh=" + bastion.Target}},
		{"--ssh-config belongs to --via ssh=USER@HOST", "", []string{"--ssh-config", "none"}},
		{"or choose another file with --ssh-config, or none", "", []string{"--via", "ssh=me@bastion", "--ssh-config", file("ssh", "Match exec true\n", 0o600)}},
		{"choose portforward, api, direct", "", []string{"--via", "ssh=-oProxyCommand=x"}},
		{"--via direct needs a konnectivity-server", "", []string{"--via", "direct"}},
		{"--allow", "", []string{"--allow", "10.0.0.0/33"}},
		{"--rules", "", []string{"--rules", none}},
		{"--rules", "", []string{"--rules", file("rules", "kind: Nonsense\n", 0o600)}},
		{"has mode 0644", "", []string{"--password-file", file("exposed", "me:canary\n", 0o644)}},
		{"--audit-log", "", []string{"--audit-log", filepath.Join(none, "log")}},
		{"--tls-cert and --tls-key belong together", "", []string{"--tls-cert", none}},
		{"serving certificate", "", []string{"--tls-cert", none, "--tls-key", none}},
		{"choose another with --context-name", "", []string{"--context-name", "test"}},
		{"has mode 0644", file("shared", string(read(t, kubeconfig)), 0o644), nil},
		{"does not know the scheme socks5h", proxied("socks5h://u:canary@127.0.0.1:1"), nil},
		{"not valid", proxied("http://u:can/ary@127.0.0.1:1"), nil},
		{"write -- before a command", "", []string{"kubectl"}},
	} {
		target := kubeconfig
		if tt.kubeconfig != "" {
			target = tt.kubeconfig
		}
		before, _ := os.ReadFile(target) // one is not there
		start := time.Now()
		cmd := fairlead(t, target, slices.Concat([]string{"--listen", "127.0.0.1:0", "--via", "network", "--write-kubeconfig", target}, tt.args)...)
		out, err := cmd.CombinedOutput()
		_, message, _ := strings.Cut(string(out), "fairlead: ")
		if err == nil || cmd.ProcessState.ExitCode() != 1 || !strings.Contains(message, tt.want) || strings.Contains(string(out), "SOCKS5 and HTTP CONNECT on") {
			t.Errorf("%q: %v, want %q\n%s", tt.args, err, tt.want, out)
		}
		if took := time.Since(start); took > bound {
			t.Errorf("%q: refused after %v", tt.args, took)
		}
		if strings.Contains(string(out), "canary") || strings.Contains(string(out), "can/ary") {
			t.Errorf("%q: the output repeats a password:\n%s", tt.args, out)
		}
		if after, _ := os.ReadFile(target); !bytes.Equal(before, after) {
			t.Errorf("%q: the kubeconfig is now\n%s", tt.args, after)
		}
	}
}

// TestNoPasswordInErrors: the URLs of proxies that are not valid are not repeated, nor is that of an API server with a password.
func TestNoPasswordInErrors(t *testing.T) {
	kubeconfig := apiServer(t)
	other := func(url string) string {
		return changed(t, kubeconfig, func(c *clientcmdapi.Config) {
			c.Clusters["other"] = &clientcmdapi.Cluster{Server: c.Clusters["test"].Server, ProxyURL: url}
		})
	}
	for _, tt := range []struct {
		want, kubeconfig string
		args             []string
	}{
		{"does not know the scheme socks5h", other("socks5h://u:canary@127.0.0.1:1"), []string{"--cluster", "other"}},
		{"not valid", other("http://u:canary/@127.0.0.1:1"), []string{"--cluster", "other"}},
		{"connection refused", changed(t, kubeconfig, func(c *clientcmdapi.Config) {
			c.Clusters["test"].Server = "https://u:canary@127.0.0.1:" + daemontest.Ports(t, 1)[0]
		}), nil},
	} {
		out, err := fairlead(t, tt.kubeconfig, slices.Concat([]string{"--listen", "127.0.0.1:0", "--via", "network"}, tt.args, []string{"--", "true"})...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), tt.want) || strings.Contains(string(out), "canary") {
			t.Errorf("%q: %v, want %q without the password\n%s", tt.args, err, tt.want, out)
		}
	}
}

// TestChangedHostKey: the error for a bastion with another host key has both fingerprints.
func TestChangedHostKey(t *testing.T) {
	b := sshdtest.New(t)
	t.Setenv("HOME", b.Home)
	t.Setenv("SSH_AUTH_SOCK", "")
	b.Stop()
	b.ChangeHostKey()
	b.Start()
	out, err := fairlead(t, apiServer(t), "--listen", "127.0.0.1:0", "--via", "ssh="+b.Target, "--", "true").CombinedOutput()
	_, message, _ := strings.Cut(string(out), "fairlead: ")
	if err == nil || strings.Count(message, "SHA256:") != 2 || strings.Contains(message, "kubectl version") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestKubeconfigAsBefore: while the proxy runs, the kubeconfig has its context; after a signal it is
// byte for byte as it was.
func TestKubeconfigAsBefore(t *testing.T) {
	// A run of the tests by nohup ignores SIGHUP, and so would the program, as it should.
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	for _, by := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} {
		kubeconfig := apiServer(t)
		before := read(t, kubeconfig)
		cmd := fairlead(t, kubeconfig, "--listen", "127.0.0.1:0", "--via", "network", "--url-file", filepath.Join(t.TempDir(), "url"), "--write-kubeconfig", kubeconfig)
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		daemontest.Eventually(t, bound, func() error {
			config, err := clientcmd.LoadFromFile(kubeconfig)
			if err == nil && config.Contexts["socks5-test"] == nil {
				err = os.ErrNotExist
			}
			return err
		})
		_ = cmd.Process.Signal(by)
		late := time.AfterFunc(bound, func() { _ = cmd.Process.Kill() })
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v: %v\n%s", by, err, &out)
		}
		late.Stop()
		if after := read(t, kubeconfig); !bytes.Equal(before, after) {
			t.Errorf("%v: the kubeconfig is now\n%s", by, after)
		}
	}
}
