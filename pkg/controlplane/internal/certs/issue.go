// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"slices"

	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
)

// ServerRequest requests the certificate of a server for one host name or address.
func ServerRequest(host, commonName string) pki.Request {
	r := pki.Request{CommonName: commonName, Usages: pki.ServerAuth}
	if ip, err := netip.ParseAddr(host); err == nil {
		r.IPs = []net.IP{ip.AsSlice()}
	} else {
		r.DNSNames = []string{host}
	}
	return r
}

// withName reissues a certificate with one more name. Key, subject, usages and
// expiry stay the same, so clients that trusted the old certificate also trust
// the new one.
func withName(old *x509.Certificate, ca pki.KeyPair, name string) ([]byte, error) {
	template := &x509.Certificate{
		Subject: old.Subject, NotBefore: old.NotBefore, NotAfter: old.NotAfter,
		KeyUsage: old.KeyUsage, ExtKeyUsage: old.ExtKeyUsage, UnknownExtKeyUsage: old.UnknownExtKeyUsage,
		BasicConstraintsValid: old.BasicConstraintsValid, IsCA: old.IsCA,
		DNSNames: slices.Clone(old.DNSNames), IPAddresses: slices.Clone(old.IPAddresses),
		EmailAddresses: old.EmailAddresses, URIs: old.URIs,
	}
	if ip, err := netip.ParseAddr(name); err == nil {
		template.IPAddresses = append(template.IPAddresses, net.IP(ip.AsSlice()))
	} else {
		template.DNSNames = append(template.DNSNames, name)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial
	if template.NotAfter.After(ca.Cert.NotAfter) {
		template.NotAfter = ca.Cert.NotAfter
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.Cert, old.PublicKey, ca.Key)
	if err != nil {
		return nil, fmt.Errorf("issue the certificate of %s again: %w", NameOf(old.Subject), err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}
