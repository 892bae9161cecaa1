// SPDX-License-Identifier: Apache-2.0

package suite_test

import (
	"context"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fairlead-dev/fairlead/e2e/harness"
	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// TestKubectlThroughTLS is TestKubectlThroughWaysIn with a proxy-url of https: kubectl logs in to
// the proxy by the kubeconfig's client certificate, or by a token as the password of proxy-url.
// On kind, exec, logs, port-forward and cp reach a real kubelet that way.
// It observes SOCKS-11 of docs/requirements.md.
func TestKubectlThroughTLS(t *testing.T) {
	testutil.Full(t, "TestSOCKS5 shows the main path")
	ca := filepath.Join(suite.StateDir(suite.Name), "pki/ca.crt") // with its key beside it, for every provider
	certificate, key := certificateOfCluster(t, ca)
	admin, err := pki.ParseCert(suite.Config.CertData)
	if err != nil {
		t.Fatal(err)
	}
	way := socks5Way(t, "socks5 with a client certificate", nil, "--via", "network",
		"--tls-cert", certificate, "--tls-key", key, "--client-ca", ca, "--token-review")
	log := slices.Concat(way.log[1:], []string{`protocol="http"`})
	way.log = slices.Concat(log, []string{`user="` + admin.Subject.CommonName + `"`})
	way.try(t)
	way.name = "socks5 with a token"
	way.log = slices.Concat(log, []string{`user="system:serviceaccount:` + harness.Namespace + `:default"`})
	way.reach = func(ctx context.Context, t *testing.T, c *clientcmdapi.Cluster) {
		u, err := url.Parse(c.ProxyURL)
		if err != nil {
			t.Fatal(err)
		}
		u.User = url.UserPassword("token", tokenFor(ctx, t))
		c.ProxyURL = u.String()
	}
	way.try(t)
}

// tokenFor returns a token of a ServiceAccount.
func tokenFor(ctx context.Context, t *testing.T, audiences ...string) string {
	t.Helper()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}
	token, err := suite.Client.CoreV1().ServiceAccounts(harness.Namespace).CreateToken(ctx, "default", request, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return token.Status.Token
}

// certificateOfCluster issues a serving certificate of the cluster's CA for this machine.
func certificateOfCluster(t *testing.T, ca string) (certificate, key string) {
	t.Helper()
	read := func(path string) []byte {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	authority, err := pki.ParseKeyPair(read(ca), read(ca[:len(ca)-len("crt")]+"key"))
	if err != nil {
		t.Fatal(err)
	}
	settings := pki.Config{Algorithm: v1alpha1.KeyECDSAP256, Validity: time.Hour, CAValidity: time.Hour}
	pair, err := authority.Issue(settings, pki.Request{CommonName: "proxy", IPs: []net.IP{net.IPv4(127, 0, 0, 1)}, Usages: pki.ServerAuth}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	keyPEM, err := pair.KeyPEM()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	certificate, key = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	for path, data := range map[string][]byte{certificate: pair.CertPEM(), key: keyPEM} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certificate, key
}
