// SPDX-License-Identifier: Apache-2.0

package install_test

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead-dev/fairlead/pkg/bundle/bundletest"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
)

// TestWaited: a run that has waited for another one does not replace the certificates that the other one has made.
func TestWaited(t *testing.T) {
	cp := daemontest.StartControlPlane(t)
	file := filepath.Join(t.TempDir(), "bundle.yaml")
	if err := os.WriteFile(file, []byte(bundletest.File("gateway: {enabled: true}")), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"install", "-f", file, "--wait=false", "--ignore-preflight-errors=all", "-o", "name"}
	config, err := clientcmd.LoadFromFile(cp.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	cluster := config.Clusters[config.Contexts[config.CurrentContext].Cluster]
	target, err := url.Parse(cluster.Server)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport = &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}} //nolint:gosec // a test's own
	var once sync.Once
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/leases/fairlead-install") {
			once.Do(func() {
				if _, errOut, code := run(t, args[0], append(args[1:], "--kubeconfig", cp.Kubeconfig)...); code != 0 {
					t.Errorf("the other run: exit code %d: %s", code, errOut)
				}
			})
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	cluster.Server, cluster.CertificateAuthority, cluster.CertificateAuthorityData, cluster.InsecureSkipTLSVerify = server.URL, "", nil, true
	behind := filepath.Join(t.TempDir(), "config")
	if err := clientcmd.WriteToFile(*config, behind); err != nil {
		t.Fatal(err)
	}
	args[len(args)-1] = "json"
	out, errOut, code := run(t, args[0], append(args[1:], "--kubeconfig", behind)...)
	if code != 0 || !strings.Contains(out, `"unchanged"`) || strings.Contains(out, `"configured"`) || strings.Contains(out, `"created"`) {
		t.Errorf("exit code %d, %s\n%s", code, errOut, out)
	}
}
