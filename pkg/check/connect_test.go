// SPDX-License-Identifier: Apache-2.0

package check

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// certificate makes a self-signed certificate for names that ends at notAfter.
func certificate(t *testing.T, cn string, notAfter time.Time, ips ...net.IP) (tls.Certificate, []byte, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: cn}, IPAddresses: ips, IsCA: true, BasicConstraintsValid: true,
		NotBefore: notAfter.Add(-48 * time.Hour), NotAfter: notAfter, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key},
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
}

func serveTLS(t *testing.T, cert tls.Certificate, status int) string {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/version" && status != http.StatusNotFound {
			_, _ = io.WriteString(w, `{}`)
			return
		}
		fail(w, status, "refused")
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.URL
}

// TestConnectExplains runs real servers that are broken in the usual ways.
func TestConnectExplains(t *testing.T) {
	loopback := net.IPv4(127, 0, 0, 1)
	future, past := time.Now().Add(24*time.Hour), time.Now().Add(-time.Hour)
	good, goodPEM, _ := certificate(t, "server", future, loopback)
	_, otherPEM, _ := certificate(t, "other", future, loopback)
	expired, expiredPEM, _ := certificate(t, "server", past, loopback)
	elsewhere, elsewherePEM, _ := certificate(t, "server", future, net.IPv4(10, 0, 0, 1))
	_, oldClient, oldKey := certificate(t, "kubernetes-admin", past)
	_, client, clientKey := certificate(t, "kubernetes-admin", future)
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	refused := "https://" + closedPort(t)

	tests := map[string]struct {
		config   rest.Config
		want     string
		wantHint string
	}{
		"no program listens": {rest.Config{Host: refused}, "connection refused", "fairlead up"},
		"wrong CA":           {rest.Config{Host: serveTLS(t, good, 200), TLSClientConfig: rest.TLSClientConfig{CAData: otherPEM}}, "not signed by the CA", "kubeconfig"},
		"expired server":     {rest.Config{Host: serveTLS(t, expired, 200), TLSClientConfig: rest.TLSClientConfig{CAData: expiredPEM}}, "was valid until", "kubeconfig"},
		"other name":         {rest.Config{Host: serveTLS(t, elsewhere, 200), TLSClientConfig: rest.TLSClientConfig{CAData: elsewherePEM}}, "does not name 127.0.0.1", "kubeconfig"},
		"no TLS there":       {rest.Config{Host: strings.Replace(plain.URL, "http:", "https:", 1)}, "does not speak TLS", "kubeconfig"},
		"bad token":          {rest.Config{Host: serveTLS(t, good, 401), BearerToken: "x", TLSClientConfig: rest.TLSClientConfig{CAData: goodPEM}}, "does not accept the credentials", "kubeconfig"},
		"expired client":     {rest.Config{Host: serveTLS(t, good, 401), TLSClientConfig: rest.TLSClientConfig{CAData: goodPEM, CertData: oldClient, KeyData: oldKey}}, `client certificate of "kubernetes-admin" in the kubeconfig expired on`, "kubeconfig"},
		"another's client":   {rest.Config{Host: serveTLS(t, good, 401), TLSClientConfig: rest.TLSClientConfig{CAData: goodPEM, CertData: client, KeyData: clientKey}}, "may belong to another cluster", "kubeconfig"},
		"forbidden":          {rest.Config{Host: serveTLS(t, good, 403), TLSClientConfig: rest.TLSClientConfig{CAData: goodPEM}}, "lacks the right", "administrator"},
		"not Kubernetes":     {rest.Config{Host: serveTLS(t, good, 404), TLSClientConfig: rest.TLSClientConfig{CAData: goodPEM}}, "not a Kubernetes API server", "port"},
		"URL with password":  {rest.Config{Host: refused, Proxy: failingProxy("no way to https://u:canary@h")}, "no way to https://", "kubectl version"},
		"host with password": {rest.Config{Host: strings.Replace(refused, "//", "//u:canary@", 1)}, "connection refused", "fairlead up"},
		"unknown name":       {rest.Config{Host: "https://no-such-name.invalid:6443"}, "does not resolve", "DNS"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			err := Connect(t.Context(), &Env{Config: &tc.config})
			if !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), tc.want) || !strings.Contains(HintOf(err), tc.wantHint) {
				t.Errorf("got %v\nhint %q\nwant %q, hint %q", err, HintOf(err), tc.want, tc.wantHint)
			}
			if strings.Contains(err.Error(), "canary") {
				t.Errorf("it repeats a password: %v", err)
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("more than one line: %q", err)
			}
		})
	}
}

func failingProxy(text string) func(*http.Request) (*url.URL, error) {
	return func(*http.Request) (*url.URL, error) { return nil, errors.New(text) }
}

func closedPort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

func TestAPIServerCheck(t *testing.T) {
	api := newStubAPI(t)
	res := runOne(t.Context(), api.env(t), checkOf("x", apiServer), Options{}.withDefaults(), shared{})
	if res.Status != OK || res.Details["version"] != "v1.36.3" {
		t.Errorf("got %+v", res)
	}
	env := api.env(t)
	api.CloseClientConnections()
	api.Close()
	if res := runOne(t.Context(), env, checkOf("x", apiServer), Options{}.withDefaults(), shared{}); res.Status != Failed {
		t.Errorf("an API server that is gone passed: %+v", res)
	}
}
