// SPDX-License-Identifier: Apache-2.0

package crd_test

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiserverv1beta1 "k8s.io/apiserver/pkg/apis/apiserver/v1beta1"

	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
)

// egressProxy is an HTTP CONNECT proxy of an egress selection, with a list of destinations.
type egressProxy struct {
	mu      sync.Mutex
	targets []string
}

func (p *egressProxy) dialed(target string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Contains(p.targets, target)
}

func (p *egressProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.targets = append(p.targets, r.RequestURI)
	p.mu.Unlock()
	out, err := net.Dial("tcp", r.RequestURI)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer out.Close()
	in, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer in.Close()
	if _, err := io.WriteString(in, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
		return
	}
	go func() {
		_, _ = io.Copy(out, in)
		_ = out.Close()
	}()
	_, _ = io.Copy(in, out)
}

// egress starts a proxy for each selection, and returns the path of the configuration.
func egress(t *testing.T, selections ...string) (proxies map[string]*egressProxy, config string) {
	t.Helper()
	proxies = map[string]*egressProxy{}
	c := apiserverv1beta1.EgressSelectorConfiguration{TypeMeta: metav1.TypeMeta{APIVersion: "apiserver.k8s.io/v1beta1", Kind: "EgressSelectorConfiguration"}}
	for _, name := range selections {
		proxies[name] = &egressProxy{}
		socket := daemontest.SocketPath(t)
		listener, err := net.Listen("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: proxies[name], ReadHeaderTimeout: bound}}
		server.Start()
		t.Cleanup(server.Close)
		c.EgressSelections = append(c.EgressSelections, apiserverv1beta1.EgressSelection{Name: name, Connection: apiserverv1beta1.Connection{
			ProxyProtocol: apiserverv1beta1.ProtocolHTTPConnect,
			Transport:     &apiserverv1beta1.Transport{UDS: &apiserverv1beta1.UDSTransport{UDSName: socket}},
		}})
	}
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	config = filepath.Join(t.TempDir(), "egress.json")
	if err := os.WriteFile(config, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return proxies, config
}
