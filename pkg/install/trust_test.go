// SPDX-License-Identifier: Apache-2.0

package install_test

import (
	"crypto/x509"
	"encoding/base64"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/install"
)

// observed calls after for each write that has reached the API server.
type observed struct {
	next  http.RoundTripper
	after func(r *http.Request)
}

func (o observed) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := o.next.RoundTrip(r)
	if r.Method != http.MethodGet && !strings.Contains(r.URL.RawQuery, "dryRun") && !strings.Contains(r.URL.Path, "selfsubject") {
		o.after(r)
	}
	return resp, err
}

// testTrustFirst: after each write of a run that replaces the CA, and so wherever the run may end, kube-apiserver trusts the
// certificate before, which Pods may still have, and the one in the Secret. The last write leaves exactly the wanted CAs.
func testTrustFirst(e env) {
	a, now := tunnelAPI{e}, time.Now()
	defer e.uninstall()
	a.backend(true)
	on := a.load("tunnelAPI: {enabled: true}")
	a.mustInstall(on, now)
	later := now.Add(80000 * time.Hour) // the CA has less time than a certificate
	a.replaces(on, later, v1alpha1.DefaultTunnelAPISecret)
	both, _ := a.trusted(later)
	if cas, err := pki.ParseCerts(both); err != nil || len(cas) != 2 {
		e.t.Errorf("%d CAs after a new one of install's, %v", len(cas), err)
	}

	own, err := pki.NewCA(pki.FromBundle(on), "own-ca", later)
	if err != nil {
		e.t.Fatal(err)
	}
	pem := "      " + strings.ReplaceAll(strings.TrimSpace(string(own.CertPEM())), "\n", "\n      ")
	mine := a.load("tunnelAPI:\n  enabled: true\n  certificateSecret: mine\n  caBundle: |\n" + pem + "\n")
	a.replaces(mine, later, v1alpha1.DefaultTunnelAPISecret)
	if cas := a.cas(); len(cas) != 1 || !cas[0].Equal(own.Cert) {
		e.t.Errorf("%d CAs after one of the user's", len(cas))
	}
}

// replaces installs, and verifies after each write but those that end the run the certificates in the Secret, of now and before.
func (a tunnelAPI) replaces(b *v1alpha1.Bundle, now time.Time, secret string) {
	a.t.Helper()
	before := a.served(secret)
	objects, err := install.Objects(a.t.Context(), a.cfg, b, now)
	if err != nil {
		a.t.Fatal(err)
	}
	cfg, writes, registered := rest.CopyConfig(a.cfg), 0, 0
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return observed{next: next, after: func(r *http.Request) {
			if strings.Contains(r.URL.Path, "/leases/") || strings.Contains(r.URL.Path, install.InventoryName) {
				return
			}
			writes++
			if strings.Contains(r.URL.Path, "/apiservices/") {
				registered++
			}
			if registered > 1 {
				return // the last write, as the bundle wants it
			}
			cas := a.cas()
			for _, cert := range []*x509.Certificate{before, a.served(secret)} {
				if cert != nil && !signedByAny(cert, cas) {
					a.t.Errorf("after %s %s kube-apiserver would refuse the certificate that %s has signed", r.Method, r.URL.Path, cert.Issuer)
				}
			}
		}}
	})
	if _, err := install.Apply(a.t.Context(), cfg, objects, install.Options{Timeout: time.Minute}.Quick()); err != nil {
		a.t.Fatal(err)
	}
	if writes < 3 || registered != 2 {
		a.t.Errorf("%d writes, of which %d to the APIService: nothing was replaced", writes, registered)
	}
}

// cas are the CAs in the APIService.
func (a tunnelAPI) cas() []*x509.Certificate {
	a.t.Helper()
	text, _, _ := unstructured.NestedString(a.registered().Object, "spec", "caBundle")
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		a.t.Fatal(err)
	}
	cas, err := pki.ParseCerts(data)
	if err != nil {
		a.t.Fatal(err)
	}
	return cas
}

// served is the certificate in the Secret; nil if the run has deleted it.
func (a tunnelAPI) served(secret string) *x509.Certificate {
	a.t.Helper()
	s, err := a.client.CoreV1().Secrets("kube-system").Get(a.t.Context(), secret, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	cert, err := pki.ParseCert(s.Data[corev1.TLSCertKey])
	if err != nil {
		a.t.Fatal(err)
	}
	return cert
}

func signedByAny(cert *x509.Certificate, cas []*x509.Certificate) bool {
	for _, ca := range cas {
		if cert.CheckSignatureFrom(ca) == nil {
			return true
		}
	}
	return false
}
