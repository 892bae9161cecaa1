// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// TestThroughRelativePaths: a path that is relative to another file is refused. Kubeconfigs that
// clientcmd reads from a file have absolute ones.
func TestThroughRelativePaths(t *testing.T) {
	proxy := &url.URL{Scheme: "socks5", Host: "127.0.0.1:1"}
	for name, change := range map[string]func(*clientcmdapi.Cluster, *clientcmdapi.AuthInfo){
		"pki/ca.crt":     func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { c.CertificateAuthority = "pki/ca.crt" },
		"pki/client.crt": func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { u.ClientCertificate = "pki/client.crt" },
		"pki/client.key": func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { u.ClientKey = "pki/client.key" },
		"token":          func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { u.TokenFile = "token" },
		"./plugin": func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.Exec = &clientcmdapi.ExecConfig{Command: "./plugin"}
		},
		"": func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.Exec = &clientcmdapi.ExecConfig{Command: "plugin"}
		},
	} {
		source, err := clientcmd.Load([]byte(users))
		if err != nil {
			t.Fatal(err)
		}
		change(source.Clusters["work"], source.AuthInfos["me"])
		_, _, err = Through(source, "work", "x", proxy)
		if name == "" && err != nil || name != "" && (err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "absolute path")) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// TestCheckProxyCertificate: a certificate passes if, and only if, client-go's own transport
// accepts it from an https proxy: of the cluster's authority, for tls-server-name or the proxy's host.
func TestCheckProxyCertificate(t *testing.T) {
	settings, now := pki.Config{Algorithm: v1alpha1.KeyECDSAP256, Validity: time.Hour, CAValidity: time.Hour}, time.Now()
	newCA := func() pki.KeyPair {
		ca, err := pki.NewCA(settings, "test", now)
		if err != nil {
			t.Fatal(err)
		}
		return ca
	}
	clusters, other := newCA(), newCA()
	for _, c := range []struct {
		name, serverName string
		ca               pki.KeyPair
		names            []string
		insecure, ok     bool
	}{
		{name: "of the cluster's authority", ca: clusters, ok: true},
		{name: "of another authority", ca: other},
		{name: "of another authority, without verification", ca: other, insecure: true, ok: true},
		{name: "tls-server-name that it has not", ca: clusters, serverName: "kubernetes"},
		{name: "tls-server-name that it has", ca: clusters, serverName: "kubernetes", names: []string{"kubernetes"}, ok: true},
	} {
		pair, err := c.ca.Issue(settings, pki.Request{CommonName: "proxy", DNSNames: c.names, IPs: []net.IP{net.IPv4(127, 0, 0, 1)}, Usages: pki.ServerAuth}, now)
		if err != nil {
			t.Fatal(err)
		}
		var asked atomic.Bool
		proxy := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			asked.Store(true)
			w.WriteHeader(http.StatusForbidden)
		}))
		proxy.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{pair.Cert.Raw}, PrivateKey: pair.Key}}, MinVersion: tls.VersionTLS12}
		proxy.Config.ErrorLog = log.New(io.Discard, "", 0)
		proxy.StartTLS()
		source := clientcmdapi.NewConfig()
		source.Clusters["c"] = &clientcmdapi.Cluster{Server: "https://192.0.2.1:6443", TLSServerName: c.serverName, InsecureSkipTLSVerify: c.insecure}
		if !c.insecure {
			source.Clusters["c"].CertificateAuthorityData = clusters.CertPEM()
		}
		source.Contexts["c"] = &clientcmdapi.Context{Cluster: "c"}
		u, err := url.Parse(proxy.URL)
		if err != nil {
			t.Fatal(err)
		}
		e, _, err := Through(source, "c", "x", u)
		if err != nil {
			t.Fatal(err)
		}
		if err := e.CheckProxyCertificate([]*x509.Certificate{pair.Cert}); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
		data, err := e.Encode()
		if err != nil {
			t.Fatal(err)
		}
		config, err := clientcmd.RESTConfigFromKubeConfig(data)
		if err != nil {
			t.Fatal(err)
		}
		client, err := rest.HTTPClientFor(config)
		if err != nil {
			t.Fatal(err)
		}
		if resp, err := client.Get(config.Host); err == nil {
			_ = resp.Body.Close()
			t.Errorf("%s: a request through the proxy that refuses it has status %d", c.name, resp.StatusCode)
		}
		if asked.Load() != c.ok {
			t.Errorf("%s: client-go accepted the proxy's certificate: %v, want %v", c.name, asked.Load(), c.ok)
		}
		proxy.Close()
	}
}
