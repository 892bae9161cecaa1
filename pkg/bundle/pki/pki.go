// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// Backdate is how long before "now" certificates begin, so that a peer whose
// clock is slow accepts a new one.
const Backdate = 5 * time.Minute

// Config says how keys and certificates are made.
type Config struct {
	Algorithm v1alpha1.KeyAlgorithm
	// Validity of issued certificates, CAValidity of CAs, both from now.
	Validity, CAValidity time.Duration
}

// ErrAlgorithm is returned for an unknown key algorithm.
var ErrAlgorithm = errors.New("unknown key algorithm")

// FromBundle is the configuration that a bundle asks for.
func FromBundle(b *v1alpha1.Bundle) Config {
	b = b.Defaulted()
	c := Config{Algorithm: b.PKI.Algorithm}
	if b.PKI.Validity != nil {
		c.Validity = b.PKI.Validity.Duration
	}
	if b.PKI.CAValidity != nil {
		c.CAValidity = b.PKI.CAValidity.Duration
	}
	return c
}

// KeyPair is a certificate and its private key.
type KeyPair struct {
	Cert *x509.Certificate
	Key  crypto.Signer
}

// Usage is what a certificate may be used for.
type Usage int

// The usages. They are bits: ClientAuth|ServerAuth is both.
const (
	ClientAuth Usage = 1 << iota
	ServerAuth
)

// Request describes a certificate to issue.
type Request struct {
	// CommonName is the user that a client certificate stands for, and
	// Organizations are its groups.
	CommonName    string
	Organizations []string
	// DNSNames and IPs are what a server certificate is good for; Go ignores the
	// common name there.
	DNSNames []string
	IPs      []net.IP
	Usages   Usage
}

// NewKey makes a private key.
func NewKey(algorithm v1alpha1.KeyAlgorithm) (crypto.Signer, error) {
	switch algorithm {
	case v1alpha1.KeyRSA2048:
		return rsa.GenerateKey(rand.Reader, 2048)
	case v1alpha1.KeyECDSAP256:
		return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	}
	return nil, fmt.Errorf("%w %q: use %s or %s", ErrAlgorithm, algorithm, v1alpha1.KeyRSA2048, v1alpha1.KeyECDSAP256)
}

// NewServiceAccountKey makes the key that signs service account tokens.
func NewServiceAccountKey(cfg Config) (crypto.Signer, error) {
	return NewKey(cfg.Algorithm)
}

// NewCA makes a self-signed CA that may sign leaf certificates only.
func NewCA(cfg Config, commonName string, now time.Time) (KeyPair, error) {
	key, err := NewKey(cfg.Algorithm)
	if err != nil {
		return KeyPair{}, err
	}
	template, err := newTemplate(commonName, now, cfg.CAValidity)
	if err != nil {
		return KeyPair{}, err
	}
	template.IsCA, template.MaxPathLenZero = true, true
	template.KeyUsage = x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign
	return sign(template, KeyPair{Cert: template, Key: key}, key)
}

// Issue makes a key and a certificate signed by p, which is a CA. The certificate
// never outlives the CA: its end is cut to the CA's. It fails if p has expired, is
// not a CA, or has another key, and if the certificate would have the name of the CA:
// OpenSSL takes such a certificate for self-signed.
func (p KeyPair) Issue(cfg Config, r Request, now time.Time) (KeyPair, error) {
	if err := VerifyCA(p, now); err != nil {
		return KeyPair{}, err
	}
	key, err := NewKey(cfg.Algorithm)
	if err != nil {
		return KeyPair{}, err
	}
	template, err := newTemplate(r.CommonName, now, cfg.Validity)
	if err != nil {
		return KeyPair{}, err
	}
	if template.NotAfter.After(p.Cert.NotAfter) {
		template.NotAfter = p.Cert.NotAfter
	}
	if template.NotBefore.Before(p.Cert.NotBefore) {
		template.NotBefore = p.Cert.NotBefore
	}
	template.Subject.Organization = r.Organizations
	if template.Subject.String() == p.Cert.Subject.String() {
		return KeyPair{}, fmt.Errorf("issue a certificate of %s: its CA has the same name, and OpenSSL would take it for self-signed: use a CA of another name", template.Subject)
	}
	template.DNSNames, template.IPAddresses = r.DNSNames, r.IPs
	template.KeyUsage = x509.KeyUsageDigitalSignature
	if cfg.Algorithm == v1alpha1.KeyRSA2048 {
		template.KeyUsage |= x509.KeyUsageKeyEncipherment
	}
	template.ExtKeyUsage = extKeyUsages(r.Usages)
	return sign(template, p, key)
}

func extKeyUsages(u Usage) []x509.ExtKeyUsage {
	var out []x509.ExtKeyUsage
	if u&ServerAuth != 0 {
		out = append(out, x509.ExtKeyUsageServerAuth)
	}
	if u&ClientAuth != 0 {
		out = append(out, x509.ExtKeyUsageClientAuth)
	}
	return out
}

func newTemplate(commonName string, now time.Time, validity time.Duration) (*x509.Certificate, error) {
	if validity <= 0 {
		return nil, fmt.Errorf("certificate %s: validity %s is not positive", commonName, validity)
	}
	serial, err := newSerial()
	if err != nil {
		return nil, fmt.Errorf("certificate %s: %w", commonName, err)
	}
	return &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: commonName},
		NotBefore:             now.Add(-Backdate).UTC(),
		NotAfter:              now.Add(validity).UTC(),
		BasicConstraintsValid: true,
	}, nil
}

// newSerial makes a random serial of 128 bits with the top bit set, so that all
// are equally long and none is zero or negative once encoded.
func newSerial() (*big.Int, error) {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("make a serial number: %w", err)
	}
	return n.SetBit(n, 127, 1), nil
}

// sign signs with SHA-256, for RSA and ECDSA alike.
func sign(template *x509.Certificate, signer KeyPair, key crypto.Signer) (KeyPair, error) {
	template.SignatureAlgorithm = x509.SHA256WithRSA
	if _, ok := signer.Key.Public().(*ecdsa.PublicKey); ok {
		template.SignatureAlgorithm = x509.ECDSAWithSHA256
	}
	der, err := x509.CreateCertificate(rand.Reader, template, signer.Cert, key.Public(), signer.Key)
	if err != nil {
		return KeyPair{}, fmt.Errorf("sign certificate %s: %w", template.Subject.CommonName, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return KeyPair{}, fmt.Errorf("read back certificate %s: %w", template.Subject.CommonName, err)
	}
	return KeyPair{Cert: cert, Key: key}, nil
}
