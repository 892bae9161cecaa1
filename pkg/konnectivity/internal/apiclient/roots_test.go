// SPDX-License-Identifier: Apache-2.0

package apiclient

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/klog/v2"

	"github.com/fairlead-dev/fairlead/pkg/internal/logtest"
)

// servingOfNewCA returns a certificate for loopback, issued by a CA that it creates.
func servingOfNewCA(t *testing.T) (tls.Certificate, []byte) {
	t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "kubernetes"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := x509.CreateCertificate(rand.Reader, template, template, &caKey.PublicKey, caKey)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(ca)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	leaf := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "kube-apiserver"}, NotBefore: template.NotBefore, NotAfter: template.NotAfter,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	der, err := x509.CreateCertificate(rand.Reader, leaf, parsed, &key.PublicKey, caKey)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca})
}

// TestRotatedCA checks that the client follows a CA rotation while it runs. As the
// kubeconfig says at that moment, the client first trusts both CAs, then the new one
// alone. A file that is half written changes nothing, and the client no longer trusts
// a CA that was removed.
func TestRotatedCA(t *testing.T) {
	oldCert, oldCA := servingOfNewCA(t)
	newCert, newCA := servingOfNewCA(t)
	var serving atomic.Pointer[tls.Certificate]
	serving.Store(&oldCert)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) }))
	server.TLS = &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return serving.Load(), nil }}
	server.Config.ErrorLog = nil
	// httptest would put its own certificate first.
	listener := tls.NewListener(server.Listener, server.TLS)
	server.Listener = listener
	server.Start()
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	write := func(cas []byte) {
		t.Helper()
		text := fmt.Sprintf(`{"current-context":"c","contexts":[{"name":"c","context":{"cluster":"k"}}],"clusters":[{"name":"k","cluster":{"server":"https://%s","certificate-authority-data":%q}}]}`,
			server.Listener.Addr(), base64.StdEncoding.EncodeToString(cas))
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(oldCA)
	cfg, err := Load(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	cfg.QPS = -1
	client := NewClient(cfg)
	var logged atomic.Int32 // by the logger of the request, which is the program's
	ctx := klog.NewContext(t.Context(), logtest.New(func(_ int, text string) {
		if strings.Contains(text, "Cannot read the CAs of the API server") {
			logged.Add(1)
		}
	}))
	call := func(step string, good bool) {
		t.Helper()
		client.CloseIdle()
		resp, err := client.request(ctx, "", http.MethodGet, "/", nil)
		if err == nil {
			_ = resp.Body.Close()
		}
		if (err == nil) != good {
			t.Errorf("%s: %v, want success %v", step, err, good)
		}
	}
	call("before", true)
	write(append(append([]byte{}, oldCA...), newCA...))
	call("both CAs are trusted", true)
	serving.Store(&newCert)
	call("the API server has a certificate of the new CA", true)
	write(append(append([]byte{}, oldCA...), newCA[:len(newCA)/2]...))
	cfg.roots.wantProblem(t, "1 unreadable one")
	call("the second CA of the file is cut", true)
	if err := os.WriteFile(file, []byte(`{"current-context":"c","clusters":[{"na`), 0o600); err != nil {
		t.Fatal(err)
	}
	call("half of the file is written", true)
	if n := logged.Load(); n != 1 {
		t.Errorf("the request's logger got the problem %d times, want 1", n)
	}
	write(newCA)
	call("only the new CA is trusted", true)
	cfg.roots.wantProblem(t, "")
	serving.Store(&oldCert)
	call("the API server still has a certificate of the old CA", false)
}

// wantProblem checks what the log was told about the CAs.
func (r *roots) wantProblem(t *testing.T, part string) {
	t.Helper()
	r.current(t.Context())
	r.mu.Lock()
	defer r.mu.Unlock()
	if !strings.Contains(r.failed, part) || part == "" && r.failed != "" {
		t.Errorf("the problem is %q, want %q", r.failed, part)
	}
}

// TestDamagedServiceAccountCA: a Pod whose ca.crt has no certificate says so at the start,
// instead of distrusting every API server later.
func TestDamagedServiceAccountCA(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
	t.Setenv("KUBERNETES_SERVICE_PORT", "6443")
	dir := t.TempDir()
	file := filepath.Join(dir, "ca.crt")
	_, ca := servingOfNewCA(t)
	for content, want := range map[string]string{
		string(ca):                          "",
		string(ca) + string(ca[:len(ca)/2]): "",
		string(ca[:len(ca)/2]):              file,
		"":                                  file,
	} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := inCluster(t.Context(), dir)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%d bytes: %v, want an error about %q", len(content), err, want)
		}
	}
}
