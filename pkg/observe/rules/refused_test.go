// SPDX-License-Identifier: Apache-2.0

package rules_test

import (
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
	"github.com/fairlead-dev/fairlead/pkg/observe"
	"github.com/fairlead-dev/fairlead/pkg/observe/rules"
)

// lookAt judges a cluster, and returns the results by ID.
func lookAt(t *testing.T, cfg *rest.Config) map[string]rules.Result {
	t.Helper()
	s, err := observe.Collect(t.Context(), observe.Target{Config: cfg, Context: "test", Limit: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]rules.Result{}
	for _, r := range rules.Judge(s, rules.Options{}).Checks {
		out[r.ID] = r
	}
	return out
}

// wants fails unless the check has the status, and its reason or first message the text.
func wants(t *testing.T, results map[string]rules.Result, id string, status rules.Status, text string) {
	t.Helper()
	r := results[id]
	said := r.Reason
	if len(r.Findings) > 0 {
		said += r.Findings[0].Message
	}
	if r.Status != status || !strings.Contains(said, text) {
		t.Errorf("%s is %s, want %s with %q: %+v", id, r.Status, status, text, r)
	}
}

// issue makes a certificate and key in PEM that a CA has signed, valid from an hour before its end.
func (a authority) issue(t *testing.T, name string, until time.Time) (cert, key []byte) {
	t.Helper()
	c := a.sign(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: name, Organization: []string{"system:masters"}}, NotBefore: until.Add(-time.Hour), NotAfter: until, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.cert)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}), keyPEM(t, a.key)
}

func keyPEM(t *testing.T, key *ecdsa.PrivateKey) []byte {
	t.Helper()
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
}

// TestExpiredClientCertificate proves that the check of the client certificate finds it expired where a real kube-apiserver refuses it for that,
// and that what the API server shows to everybody is judged all the same.
func TestExpiredClientCertificate(t *testing.T) {
	testutil.Full(t, "starts a second control plane")
	ca := newAuthority(t, "clients", time.Now().Add(time.Hour))
	file := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, []byte(pemOf(ca.cert)), 0o600); err != nil {
		t.Fatal(err)
	}
	cp := daemontest.StartControlPlane(t, "--client-ca-file="+file)
	cfg, err := clientcmd.BuildConfigFromFlags("", cp.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	cfg.BearerToken = ""
	cfg.CertData, cfg.KeyData = ca.issue(t, "admin", time.Now().Add(30*time.Minute))
	wants(t, lookAt(t, cfg), "FL-API-001", rules.OK, "") // the CA is the right one
	cfg.CertData, cfg.KeyData = ca.issue(t, "admin", time.Now().Add(-time.Minute))
	got := lookAt(t, cfg)
	wants(t, got, "FL-API-001", rules.Failed, `"admin" in the kubeconfig expired`)
	wants(t, got, "FL-CRT-002", rules.Failed, `"admin" expired`)
	wants(t, got, "FL-CRT-001", rules.OK, "") // its certificate of an hour is new
	wants(t, got, "FL-API-006", rules.OK, "")
	wants(t, got, "FL-API-008", rules.OK, "")
	wants(t, got, "FL-API-002", rules.Skipped, "FL-API-001")
}

// TestExpiredServingCertificate proves that the check of the API server's certificate finds it expired where the client refuses it for that, and
// that a wrong clock, which is the other cause of that refusal, is found there, too. The client sends its token only to a server that it has verified.
func TestExpiredServingCertificate(t *testing.T) {
	ca := newAuthority(t, "cluster", time.Now().Add(time.Hour))
	cert, key := ca.issue(t, "kube-apiserver", time.Now().Add(-time.Minute))
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	credentials := make(chan string, 100)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		credentials <- r.Header.Get("Authorization")
		w.Header().Set("Date", time.Now().Add(-90*time.Minute).UTC().Format(http.TimeFormat)) // in whole seconds
		w.WriteHeader(http.StatusUnauthorized)
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	t.Cleanup(server.Close)
	cfg := &rest.Config{Host: server.URL, BearerToken: "secret", TLSClientConfig: rest.TLSClientConfig{CAData: []byte(pemOf(ca.cert))}}
	got := lookAt(t, cfg)
	wants(t, got, "FL-API-001", rules.Failed, "its certificate was valid until")
	wants(t, got, "FL-CRT-001", rules.Failed, `"kube-apiserver" expired`)
	wants(t, got, "FL-API-006", rules.Warning, "differs by 1h")
	wants(t, got, "FL-CRT-002", rules.Skipped, "no client certificate")
	server.Close() // no handler sends any more
	close(credentials)
	for c := range credentials {
		if c != "" {
			t.Errorf("the server that is not verified got %q", c)
		}
	}
}

// TestBadProxy proves that the proxy of the environment is reported where it keeps every answer of the API server away. Go reads the environment
// once, so the check runs in a process of its own.
func TestBadProxy(t *testing.T) {
	const inside = "FAIRLEAD_TEST_BEHIND_PROXY"
	if os.Getenv(inside) != "" {
		got := lookAt(t, &rest.Config{Host: "https://10.1.2.3:6443"})
		wants(t, got, "FL-API-001", rules.Failed, "")
		wants(t, got, "FL-API-008", rules.Warning, os.Getenv("HTTPS_PROXY"))
		wants(t, got, "FL-CRT-001", rules.Skipped, "FL-API-001")
		return
	}
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }))
	t.Cleanup(proxy.Close)
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestBadProxy$", "-test.v")
	cmd.Env = append(os.Environ(), inside+"=1", "HTTPS_PROXY="+proxy.URL, "NO_PROXY=")
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestBadProxy") {
		t.Errorf("%v\n%s", err, out)
	}
}
