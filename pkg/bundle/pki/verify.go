// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"time"
)

// What can be wrong with certificates.
var (
	ErrExpired     = errors.New("certificate has expired")
	ErrNotYetValid = errors.New("certificate is not valid yet")
	ErrNotCA       = errors.New("certificate is not a CA")
	ErrKeyMismatch = errors.New("private key does not belong to the certificate")
	ErrSharedCA    = errors.New("one CA is used for two purposes")
)

// VerifyKey fails with [ErrKeyMismatch] if key and certificate do not belong
// together.
func VerifyKey(p KeyPair) error {
	public, ok := p.Key.Public().(interface{ Equal(crypto.PublicKey) bool })
	if !ok || !public.Equal(p.Cert.PublicKey) {
		return fmt.Errorf("%s: %w: give the key that was made with it", name(p.Cert), ErrKeyMismatch)
	}
	return nil
}

// VerifyCA fails if p cannot sign certificates at time now: it has expired, is
// not valid yet, is not a CA, or key and certificate do not belong together.
func VerifyCA(p KeyPair, now time.Time) error {
	if !p.Cert.IsCA || !p.Cert.BasicConstraintsValid {
		return fmt.Errorf("%s: %w: give the CA's certificate (kubeadm: ca.crt)", name(p.Cert), ErrNotCA)
	}
	if p.Cert.KeyUsage != 0 && p.Cert.KeyUsage&x509.KeyUsageCertSign == 0 {
		return fmt.Errorf("%s: %w: its key usage does not allow to sign certificates", name(p.Cert), ErrNotCA)
	}
	if err := VerifyTime(p.Cert, now); err != nil {
		return err
	}
	return VerifyKey(p)
}

// VerifyTime fails with [ErrExpired] or [ErrNotYetValid].
func VerifyTime(cert *x509.Certificate, now time.Time) error {
	if now.After(cert.NotAfter) {
		return fmt.Errorf("%s: %w on %s: renew it first", name(cert), ErrExpired, cert.NotAfter.Format(time.RFC3339))
	}
	if now.Before(cert.NotBefore) {
		return fmt.Errorf("%s: %w, only from %s: check this machine's clock",
			name(cert), ErrNotYetValid, cert.NotBefore.Format(time.RFC3339))
	}
	return nil
}

// VerifyDistinct fails with [ErrSharedCA] if the cluster's client CA is also the
// request-header CA: then every client certificate with an allowed name could
// impersonate any user. CAs with equal keys count as equal, because each accepts
// the certificates of the other.
func VerifyDistinct(clientCA, requestHeaderCA *x509.Certificate) error {
	same := clientCA.Equal(requestHeaderCA) ||
		bytes.Equal(clientCA.RawSubjectPublicKeyInfo, requestHeaderCA.RawSubjectPublicKeyInfo)
	if same {
		return fmt.Errorf("%s: %w: make an own CA for the front proxy", name(clientCA), ErrSharedCA)
	}
	return nil
}

// VerifyDistinctCAs is [VerifyDistinct] for every pair of two sets of CAs. It also fails if a request-header CA has signed a
// client CA: then the certificates of that client CA lead to the request-header CA, too.
func VerifyDistinctCAs(clientCAs, requestHeaderCAs []*x509.Certificate) error {
	for _, client := range clientCAs {
		for _, header := range requestHeaderCAs {
			if err := VerifyDistinct(client, header); err != nil {
				return err
			}
			if client.CheckSignatureFrom(header) == nil {
				return fmt.Errorf("%s is signed by %s: %w: make a CA for the front proxy that signs nothing else", name(client), name(header), ErrSharedCA)
			}
		}
	}
	return nil
}

func name(cert *x509.Certificate) string {
	return fmt.Sprintf("certificate %q", cert.Subject.CommonName)
}
