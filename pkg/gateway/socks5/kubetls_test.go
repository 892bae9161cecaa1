// SPDX-License-Identifier: Apache-2.0

package socks5

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// newTLSAPIWorld is a world with the API server whose clients need TLS, and a certificate of the
// CA or the token that the kubeconfig has for the API server.
func newTLSAPIWorld(t *testing.T, ca *testCA) (*world, *httptest.Server) {
	t.Helper()
	w, srv, _ := newAPIWorld(t, withTLS(t, ca), func(_ *world, c *Config) {
		c.Authenticator.Password = nil
		c.Authenticator.Tokens = authenticator.TokenFunc(func(_ context.Context, token string) (*authenticator.Response, bool, error) {
			return &authenticator.Response{User: &user.DefaultInfo{Name: "tokens-user"}}, token == "secret-token", nil
		})
	})
	return w, srv
}

// tlsKubeconfig is a kubeconfig whose CAs are those of the API server and of the proxy, with a
// certificate if it is not empty.
func tlsKubeconfig(t *testing.T, srv *httptest.Server, ca *testCA, proxyURL *url.URL, certificate string) *rest.Config {
	t.Helper()
	config, err := kubeconfig(t, srv, "https://"+apiServer+":6443", proxyURL.String())
	if err != nil {
		t.Fatal(err)
	}
	read := func(name string) []byte {
		data, err := os.ReadFile(ca.file(name))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	config.CAData = slices.Concat(config.CAData, read("ca.crt"))
	if certificate != "" {
		config.CertData, config.KeyData = read(certificate+".crt"), read(certificate+".key")
	}
	return config
}

// TestHTTPSProxyURL: what kubectl's client shows to a proxy-url of https. It is the client
// certificate of the kubeconfig, or a token as the password of proxy-url, for requests and for exec
// by WebSocket and by SPDY. The kubeconfig's own bearer token is for the API server
// alone: the proxy does not get it, and refuses the client.
// It observes SOCKS-11 of docs/requirements.md.
func TestHTTPSProxyURL(t *testing.T) {
	t.Parallel()
	ca := newCA(t)
	ca.server(t)
	ca.issue(t, "carol", &x509.Certificate{Subject: pkix.Name{CommonName: "carol"}})
	for _, c := range []struct {
		name, certificate string
		login             *url.Userinfo
		user              string // "" if the proxy refuses
	}{
		{"client certificate", "carol", nil, "carol"},
		{"token as a password", "", url.UserPassword("token", "secret-token"), "tokens-user"},
		{"wrong token as a password", "", url.UserPassword("token", "wrong"), ""},
		{"bearer token of the kubeconfig", "", nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, srv := newTLSAPIWorld(t, ca)
			config := tlsKubeconfig(t, srv, ca, &url.URL{Scheme: "https", Host: w.addr, User: c.login}, c.certificate)
			pods, err := kubernetes.NewForConfigOrDie(config).CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
			srv.CloseClientConnections()
			if c.user == "" {
				if err == nil || !strings.Contains(err.Error(), "Proxy Authentication Required") {
					t.Errorf("list: %v, want the proxy's refusal", err)
				}
				return
			}
			if err != nil || len(pods.Items) != 1 {
				t.Fatalf("list: %v, %v", pods, err)
			}
			execByBoth(t, config)
			srv.CloseClientConnections()
			for _, r := range w.ended(t, 3) {
				if r.User != c.user || r.Protocol != "http" {
					t.Errorf("%+v", r)
				}
			}
		})
	}
}
