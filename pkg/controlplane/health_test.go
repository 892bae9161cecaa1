package controlplane

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestHealthAsAdministrator: with --anonymous-auth=false kube-apiserver tells its
// health to those only whom it knows.
func TestHealthAsAdministrator(t *testing.T) {
	root := testNode(t)
	n := newNode(testOptions(root).defaulted())
	cert, err := tls.LoadX509KeyPair(n.path(servingCert), n.path(servingKey))
	if err != nil {
		t.Fatal(err)
	}
	ca, err := n.read("/etc/kubernetes/pki/ca.crt")
	if err != nil {
		t.Fatal(err)
	}
	clients := x509.NewCertPool()
	clients.AppendCertsFromPEM(ca)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.TLS.VerifiedChains) == 0 || r.TLS.PeerCertificates[0].Subject.CommonName != "kubernetes-admin" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, ClientCAs: clients, ClientAuth: tls.VerifyClientCertIfGiven}
	server.StartTLS()
	defer server.Close()
	if err := n.readManifest(); err != nil {
		t.Fatal(err)
	}
	n.address = server.Listener.Addr().String()
	n.connect()
	if err := n.healthy(t.Context(), "https://"+n.address+"/readyz"); err != nil {
		t.Error(err)
	}
	n.config = nil
	if err := n.healthy(t.Context(), "https://"+n.address+"/readyz"); err == nil {
		t.Error("this server answers anybody, so the test shows nothing")
	}
}
