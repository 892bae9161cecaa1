// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
	"slices"
	"strings"
)

// clientCert notices why crypto/tls does not show the agent's certificate to a server:
// all that it says itself is the server's alert that there was none.
type clientCert struct {
	unused string // why; empty if the certificate was shown, or there is none
}

// watch has the configuration of one connection report here. What is shown stays the same.
func (c *clientCert) watch(cfg *tls.Config) {
	if cfg.GetClientCertificate != nil || len(cfg.Certificates) == 0 {
		return
	}
	own := cfg.Certificates
	cfg.GetClientCertificate = func(asked *tls.CertificateRequestInfo) (*tls.Certificate, error) {
		for i := range own {
			if asked.SupportsCertificate(&own[i]) == nil {
				return &own[i], nil
			}
		}
		c.unused = foreignIssuer(own[0].Certificate, asked.AcceptableCAs)
		return &tls.Certificate{}, nil
	}
}

// maxNamedCAs is how many of the CAs that a server accepts are named in a message.
const maxNamedCAs = 3

// foreignIssuer returns a message if none of the CAs that a server names has issued a
// certificate of the chain. Otherwise it returns "".
func foreignIssuer(chain, accepted [][]byte) string {
	issuer := ""
	for _, der := range chain {
		cert, err := x509.ParseCertificate(der)
		if err != nil || slices.ContainsFunc(accepted, func(ca []byte) bool { return bytes.Equal(ca, cert.RawIssuer) }) {
			return ""
		}
		issuer = cert.Issuer.String()
	}
	if issuer == "" || len(accepted) == 0 {
		return ""
	}
	var names []string
	for _, ca := range accepted[:min(len(accepted), maxNamedCAs)] {
		var rdn pkix.RDNSequence
		if _, err := asn1.Unmarshal(ca, &rdn); err != nil {
			return ""
		}
		names = append(names, fmt.Sprintf("%.200q", rdn.String()))
	}
	if more := len(accepted) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return fmt.Sprintf("the server accepts certificates of %s; --agent-cert is issued by %q: append the intermediate certificates to the file, or use a certificate of that CA",
		strings.Join(names, ", "), issuer)
}
