// SPDX-License-Identifier: Apache-2.0

package pki_test

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func config(algorithm v1alpha1.KeyAlgorithm) pki.Config {
	return pki.Config{Algorithm: algorithm, Validity: 9000 * time.Hour, CAValidity: 87600 * time.Hour}
}

var ecdsaConfig = config(v1alpha1.KeyECDSAP256)

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func newCA(t *testing.T, cfg pki.Config) pki.KeyPair {
	t.Helper()
	return must[pki.KeyPair](t)(pki.NewCA(cfg, "kubernetes", now))
}

// TestIssue checks the chain, names, usages, validity, key and signature of an
// issued certificate.
// It observes KON-20 of docs/requirements.md.
func TestIssue(t *testing.T) {
	for _, algorithm := range []v1alpha1.KeyAlgorithm{v1alpha1.KeyRSA2048, v1alpha1.KeyECDSAP256} {
		t.Run(string(algorithm), func(t *testing.T) {
			cfg := config(algorithm)
			ca := newCA(t, cfg)
			leaf := must[pki.KeyPair](t)(ca.Issue(cfg, pki.Request{
				CommonName: "system:konnectivity-server", Organizations: []string{"group"},
				DNSNames: []string{"a.example.test"}, IPs: []net.IP{net.IPv4(192, 0, 2, 1)},
				Usages: pki.ClientAuth | pki.ServerAuth,
			}, now))
			verify(t, ca, leaf, "a.example.test", x509.ExtKeyUsageServerAuth)
			verify(t, ca, leaf, "192.0.2.1", x509.ExtKeyUsageServerAuth)
			verify(t, ca, leaf, "", x509.ExtKeyUsageClientAuth)
			cert := leaf.Cert
			if cert.Subject.CommonName != "system:konnectivity-server" || !slices.Equal(cert.Subject.Organization, []string{"group"}) {
				t.Errorf("subject %v", cert.Subject)
			}
			if !cert.NotBefore.Equal(now.Add(-pki.Backdate)) || !cert.NotAfter.Equal(now.Add(9000*time.Hour)) {
				t.Errorf("valid from %v to %v", cert.NotBefore, cert.NotAfter)
			}
			if cert.Version != 3 || cert.IsCA || cert.SerialNumber.BitLen() != 128 {
				t.Errorf("version %d, CA %t, serial of %d bits", cert.Version, cert.IsCA, cert.SerialNumber.BitLen())
			}
			checkKey(t, algorithm, cert)
		})
	}
}

func checkKey(t *testing.T, algorithm v1alpha1.KeyAlgorithm, cert *x509.Certificate) {
	t.Helper()
	switch public := cert.PublicKey.(type) {
	case *rsa.PublicKey:
		if algorithm != v1alpha1.KeyRSA2048 || public.N.BitLen() != 2048 || cert.SignatureAlgorithm != x509.SHA256WithRSA {
			t.Errorf("RSA %d bits, %v", public.N.BitLen(), cert.SignatureAlgorithm)
		}
	case *ecdsa.PublicKey:
		if algorithm != v1alpha1.KeyECDSAP256 || public.Curve.Params().Name != "P-256" || cert.SignatureAlgorithm != x509.ECDSAWithSHA256 {
			t.Errorf("ECDSA %s, %v", public.Curve.Params().Name, cert.SignatureAlgorithm)
		}
	default:
		t.Errorf("key %T", public)
	}
}

func verify(t *testing.T, ca, leaf pki.KeyPair, host string, usage x509.ExtKeyUsage) {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(ca.Cert)
	_, err := leaf.Cert.Verify(x509.VerifyOptions{
		Roots: roots, CurrentTime: now, DNSName: host, KeyUsages: []x509.ExtKeyUsage{usage},
	})
	if err != nil {
		t.Errorf("verify for %q, usage %v: %v", host, usage, err)
	}
}

// TestUsagesAreLimited: a client certificate is not valid for a server, and the
// other way round.
// It observes OLD-27 of docs/requirements.md.
func TestUsagesAreLimited(t *testing.T) {
	ca := newCA(t, ecdsaConfig)
	roots := x509.NewCertPool()
	roots.AddCert(ca.Cert)
	for usage, want := range map[pki.Usage]x509.ExtKeyUsage{
		pki.ClientAuth: x509.ExtKeyUsageServerAuth, pki.ServerAuth: x509.ExtKeyUsageClientAuth,
	} {
		leaf := must[pki.KeyPair](t)(ca.Issue(ecdsaConfig, pki.Request{CommonName: "x", Usages: usage}, now))
		if _, err := leaf.Cert.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{want}}); err == nil {
			t.Errorf("a certificate for usage %v passed as %v", usage, want)
		}
	}
}

// TestLeafCannotSign: the CA's path length is zero and a leaf is no CA.
func TestLeafCannotSign(t *testing.T) {
	ca := newCA(t, ecdsaConfig)
	leaf := must[pki.KeyPair](t)(ca.Issue(ecdsaConfig, pki.Request{CommonName: "x", Usages: pki.ClientAuth}, now))
	if _, err := leaf.Issue(ecdsaConfig, pki.Request{CommonName: "y"}, now); !errors.Is(err, pki.ErrNotCA) {
		t.Errorf("error %v, want ErrNotCA", err)
	}
	if !ca.Cert.MaxPathLenZero || ca.Cert.MaxPathLen != 0 {
		t.Error("the CA may sign other CAs")
	}
}

// TestLeafDoesNotOutliveCA: a certificate ends with its CA at the latest.
func TestLeafDoesNotOutliveCA(t *testing.T) {
	ca := newCA(t, pki.Config{Algorithm: v1alpha1.KeyECDSAP256, CAValidity: time.Hour})
	leaf := must[pki.KeyPair](t)(ca.Issue(ecdsaConfig, pki.Request{CommonName: "x", Usages: pki.ClientAuth}, now.Add(time.Minute)))
	if !leaf.Cert.NotAfter.Equal(ca.Cert.NotAfter) {
		t.Errorf("leaf ends %v, CA ends %v", leaf.Cert.NotAfter, ca.Cert.NotAfter)
	}
	verify(t, ca, leaf, "", x509.ExtKeyUsageClientAuth)
}

func TestSerialsDiffer(t *testing.T) {
	ca := newCA(t, ecdsaConfig)
	seen := map[string]bool{ca.Cert.SerialNumber.String(): true}
	for range 20 {
		leaf := must[pki.KeyPair](t)(ca.Issue(ecdsaConfig, pki.Request{CommonName: "x"}, now))
		if s := leaf.Cert.SerialNumber.String(); seen[s] {
			t.Fatalf("serial %s twice", s)
		} else {
			seen[s] = true
		}
	}
}

func TestIssueRefuses(t *testing.T) {
	ca, other := newCA(t, ecdsaConfig), newCA(t, ecdsaConfig)
	noSigning := *ca.Cert
	noSigning.KeyUsage = x509.KeyUsageDigitalSignature
	for name, tc := range map[string]struct {
		ca   pki.KeyPair
		cfg  pki.Config
		now  time.Time
		want error
	}{
		"expired":         {ca, ecdsaConfig, now.Add(87601 * time.Hour), pki.ErrExpired},
		"not yet":         {ca, ecdsaConfig, now.Add(-time.Hour), pki.ErrNotYetValid},
		"other key":       {pki.KeyPair{Cert: ca.Cert, Key: other.Key}, ecdsaConfig, now, pki.ErrKeyMismatch},
		"may not sign":    {pki.KeyPair{Cert: &noSigning, Key: ca.Key}, ecdsaConfig, now, pki.ErrNotCA},
		"other algorithm": {ca, pki.Config{Algorithm: "RSA-1024", Validity: time.Hour}, now, pki.ErrAlgorithm},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := tc.ca.Issue(tc.cfg, pki.Request{CommonName: "x"}, tc.now); !errors.Is(err, tc.want) {
				t.Errorf("error %v, want %v", err, tc.want)
			}
		})
	}
	// curl, which uses OpenSSL, would call it self-signed.
	if _, err := ca.Issue(ecdsaConfig, pki.Request{CommonName: ca.Cert.Subject.CommonName}, now); err == nil || !strings.Contains(err.Error(), "the same name") {
		t.Errorf("a certificate of the name of its CA: %v", err)
	}
	if _, err := ca.Issue(pki.Config{Algorithm: v1alpha1.KeyECDSAP256}, pki.Request{CommonName: "x"}, now); err == nil {
		t.Error("a certificate without life time was issued")
	}
}

// TestSharedCA: VerifyDistinct rejects one CA for client certificates and for
// the front proxy.
// It observes AGG-31 of docs/requirements.md.
func TestSharedCA(t *testing.T) {
	ca, other := newCA(t, ecdsaConfig), newCA(t, ecdsaConfig)
	if err := pki.VerifyDistinct(ca.Cert, other.Cert); err != nil {
		t.Error(err)
	}
	if err := pki.VerifyDistinct(ca.Cert, ca.Cert); !errors.Is(err, pki.ErrSharedCA) {
		t.Errorf("error %v, want ErrSharedCA", err)
	}
	renewed := *other.Cert
	renewed.RawSubjectPublicKeyInfo = ca.Cert.RawSubjectPublicKeyInfo
	if err := pki.VerifyDistinct(ca.Cert, &renewed); !errors.Is(err, pki.ErrSharedCA) {
		t.Errorf("equal keys: error %v, want ErrSharedCA", err)
	}
}

func TestPEMRoundTrip(t *testing.T) {
	for _, algorithm := range []v1alpha1.KeyAlgorithm{v1alpha1.KeyRSA2048, v1alpha1.KeyECDSAP256} {
		ca := newCA(t, config(algorithm))
		key := must[[]byte](t)(ca.KeyPEM())
		back := must[pki.KeyPair](t)(pki.ParseKeyPair(ca.CertPEM(), key))
		if !back.Cert.Equal(ca.Cert) {
			t.Errorf("%s: another certificate came back", algorithm)
		}
		if _, err := tls.X509KeyPair(ca.CertPEM(), key); err != nil {
			t.Errorf("%s: crypto/tls: %v", algorithm, err)
		}
	}
}

// TestParseOtherKeys: ParseKey reads the formats that openssl and kubeadm
// write.
func TestParseOtherKeys(t *testing.T) {
	rsaKey := must[any](t)(asAny(pki.NewKey(v1alpha1.KeyRSA2048))).(*rsa.PrivateKey)
	ecKey := must[any](t)(asAny(pki.NewKey(v1alpha1.KeyECDSAP256))).(*ecdsa.PrivateKey)
	ecDER := must[[]byte](t)(x509.MarshalECPrivateKey(ecKey))
	ec := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: ecDER})
	for name, data := range map[string][]byte{
		"PKCS#1":               pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(rsaKey)}),
		"SEC 1":                ec,
		"parameters before it": append(pem.EncodeToMemory(&pem.Block{Type: "EC PARAMETERS", Bytes: []byte{6}}), ec...),
	} {
		if _, err := pki.ParseKey(data); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func asAny[T any](v T, err error) (any, error) { return v, err }

func TestParseRefuses(t *testing.T) {
	ca := newCA(t, ecdsaConfig)
	cert, key := ca.CertPEM(), must[[]byte](t)(ca.KeyPEM())
	otherKey := must[[]byte](t)(newCA(t, ecdsaConfig).KeyPEM())
	encrypted := pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED PRIVATE KEY", Bytes: []byte("x")})
	broken := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")})
	brokenKey := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("x")})
	for name, tc := range map[string]struct {
		cert, key []byte
		want      string
	}{
		"nothing": {nil, nil, "holds no certificate"}, "text": {[]byte("x"), key, "holds no certificate"},
		"swapped": {key, cert, "holds no certificate"}, "no key": {cert, cert, "holds no private key"},
		"encrypted": {cert, encrypted, "must be decrypted"}, "broken certificate": {broken, key, "read certificate"},
		"broken key": {cert, brokenKey, "read private key"}, "other key": {cert, otherKey, "does not belong"},
	} {
		if _, err := pki.ParseKeyPair(tc.cert, tc.key); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want %q", name, err, tc.want)
		}
	}
}

// TestKubeconfig: client-go's own loader reads the kubeconfig, which embeds the
// certificate and the key.
func TestKubeconfig(t *testing.T) {
	ca := newCA(t, ecdsaConfig)
	client := must[pki.KeyPair](t)(ca.Issue(ecdsaConfig, pki.Request{CommonName: "u", Usages: pki.ClientAuth}, now))
	data := must[[]byte](t)(pki.Kubeconfig(pki.KubeconfigRequest{
		Cluster: "kubernetes", Server: "https://192.0.2.1:6443", CA: ca.CertPEM(), User: "u", Client: client,
	}))
	c, err := clientcmd.Load(data)
	if err != nil {
		t.Fatal(err)
	}
	if err := clientcmd.ConfirmUsable(*c, ""); err != nil {
		t.Error(err)
	}
	if c.CurrentContext != "u@kubernetes" {
		t.Errorf("current context %q", c.CurrentContext)
	}
	user := c.AuthInfos["u"]
	if _, err := tls.X509KeyPair(user.ClientCertificateData, user.ClientKeyData); err != nil {
		t.Error(err)
	}
	if user.ClientCertificate+user.ClientKey+c.Clusters["kubernetes"].CertificateAuthority != "" {
		t.Error("the kubeconfig refers to files")
	}
}

func TestServiceAccountKey(t *testing.T) {
	for _, algorithm := range []v1alpha1.KeyAlgorithm{v1alpha1.KeyRSA2048, v1alpha1.KeyECDSAP256} {
		key, err := pki.NewServiceAccountKey(config(algorithm))
		if err != nil {
			t.Fatal(err)
		}
		public := must[[]byte](t)(pki.EncodePublicKey(key))
		if block, _ := pem.Decode(public); block == nil || block.Type != "PUBLIC KEY" {
			t.Errorf("%s: %s", algorithm, public)
		}
	}
	if _, err := pki.NewServiceAccountKey(pki.Config{Algorithm: "x"}); !errors.Is(err, pki.ErrAlgorithm) {
		t.Errorf("error %v", err)
	}
}

// TestDistinctCAs proves that every pair is compared, and that a client CA below the request-header CA is refused as well.
func TestDistinctCAs(t *testing.T) {
	cfg, now := pki.FromBundle(v1alpha1.New()), time.Now()
	newCA := func(name string) pki.KeyPair {
		ca, err := pki.NewCA(cfg, name, now)
		if err != nil {
			t.Fatal(err)
		}
		return ca
	}
	client, front, below := newCA("client"), newCA("front"), newCA("below")
	der, err := x509.CreateCertificate(rand.Reader, below.Cert, front.Cert, below.Key.Public(), front.Key)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	list := func(certs ...*x509.Certificate) []*x509.Certificate { return certs }
	for name, tc := range map[string]struct {
		clients, headers []*x509.Certificate
		want             error
	}{
		"different":                       {list(client.Cert, below.Cert), list(front.Cert), nil},
		"the last pair is the same":       {list(client.Cert, front.Cert), list(below.Cert, front.Cert), pki.ErrSharedCA},
		"front proxy's CA signs clients'": {list(client.Cert, signed), list(front.Cert), pki.ErrSharedCA},
	} {
		if err := pki.VerifyDistinctCAs(tc.clients, tc.headers); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
	}
}
