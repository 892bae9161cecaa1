// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
	"github.com/fairlead-dev/fairlead/pkg/gateway/sshdtest"
)

// slowAPIServer answers at once, but its watches go on. It returns a kubeconfig.
func slowAPIServer(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.WriteString(w, `{"kind":"APIVersions","versions":["v1"]}`+"\n")
		if req.URL.Query().Get("watch") != "" {
			w.(http.Flusher).Flush()
			<-req.Context().Done()
		}
	}))
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	config := clientcmdapi.NewConfig()
	config.Clusters["test"] = &clientcmdapi.Cluster{Server: s.URL}
	config.AuthInfos["test"] = &clientcmdapi.AuthInfo{}
	config.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "test"}
	config.CurrentContext = "test"
	path := filepath.Join(t.TempDir(), "config")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// viaBastion starts an sshd whose user is this process's.
func viaBastion(t *testing.T) *sshdtest.Bastion {
	t.Helper()
	b := sshdtest.New(t)
	t.Setenv("HOME", b.Home)
	t.Setenv("SSH_AUTH_SOCK", "")
	return b
}

// eventually waits for a status and a text.
func (p *process) eventually(t *testing.T, path string, status int, text string) {
	t.Helper()
	daemontest.Eventually(t, bound, func() error {
		if got, body := p.get(t, path); got != status || !strings.Contains(body, text) {
			return fmt.Errorf("%s: status %d, %q; want %d, %q", path, got, body, status, text)
		}
		return nil
	})
}

// TestVia: requests go through a real sshd and nowhere else. When the bastion dies, an open watch
// ends, requests fail with its name and what to do, and the proxy works again when it is back.
func TestVia(t *testing.T) {
	b := viaBastion(t)
	p := start(t, slowAPIServer(t), "--via", "ssh="+b.Target, "--port", "0")
	if status, body := p.get(t, "/api"); status != http.StatusOK || !strings.Contains(body, "APIVersions") {
		t.Fatalf("through the bastion: %d, %q", status, body)
	}
	watch, err := (&http.Client{Timeout: bound}).Get("http://" + p.address + "/api/v1/pods?watch=true")
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Body.Close()
	b.Stop()
	if rest, err := io.ReadAll(watch.Body); !strings.Contains(string(rest), "APIVersions") || os.IsTimeout(err) {
		t.Errorf("the watch had %q and ended with %v", rest, err)
	}
	address := b.Target[strings.Index(b.Target, "@")+1:]
	p.eventually(t, "/api", http.StatusBadGateway, address)
	b.Start()
	p.eventually(t, "/api", http.StatusOK, "APIVersions")
}

// TestViaCommand: a client with the command's kubeconfig works through the bastion.
func TestViaCommand(t *testing.T) {
	b := viaBastion(t)
	copied := filepath.Join(t.TempDir(), "copied")
	cmd := fairlead(t.Context(), fakeAPIServer(t), "proxy", "--via", "ssh="+b.Target, "--", "sh", "-c", `cp "$KUBECONFIG" "$0.part" && mv "$0.part" "$0" && exec cat`, copied)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, copied)
	if got, err := ask(t, copied, ""); err != nil || !strings.HasPrefix(got, "200 ") {
		t.Errorf("through the bastion: %q, %v", got, err)
	}
	_ = stdin.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// TestViaChangedHostKey: a bastion with another host key gets no request, and the error has both
// fingerprints; the client gets it, too.
func TestViaChangedHostKey(t *testing.T) {
	b := viaBastion(t)
	b.Stop()
	b.ChangeHostKey()
	b.Start()
	p := start(t, slowAPIServer(t), "--via", "ssh="+b.Target, "--port", "0")
	status, body := p.get(t, "/api")
	if status != http.StatusBadGateway || strings.Count(body, "SHA256:") != 2 {
		t.Errorf("status %d, %s", status, body)
	}
	daemontest.Eventually(t, bound, func() error {
		if strings.Count(p.stderr.String(), "Warning: ") == 0 {
			return fmt.Errorf("no warning at the start: %s", p.stderr.String())
		}
		return nil
	})
}

// TestViaIsRefused: other paths, and targets that are none, are refused with what to write.
func TestViaIsRefused(t *testing.T) {
	kubeconfig := slowAPIServer(t)
	for via, want := range map[string]string{
		"portforward": "socks5 --via portforward", "direct": "ssh=USER@HOST", "ssh=": "ssh=USER@HOST", "ssh=-oProxyCommand=x": "ssh=USER@HOST",
		"": "ssh=USER@HOST", "bastion": "ssh=USER@HOST", "ssh=me@host:port": "port",
	} {
		out, err := fairlead(t.Context(), kubeconfig, "proxy", "--port", "0", "--via="+via).CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("--via %q: %v, %s", via, err, out)
		}
	}
}
