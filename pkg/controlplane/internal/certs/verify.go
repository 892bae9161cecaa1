// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"slices"

	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// CheckServerKubeconfig fails if the Konnectivity server cannot use a
// kubeconfig: it belongs to another user or another cluster, or its certificate
// has expired.
func (n Node) CheckServerKubeconfig(data []byte) error {
	cert, _, err := Identity(data)
	if err != nil {
		return err
	}
	if cert == nil {
		return nil // a token or a plugin; only the API server can verify it
	}
	if cn := cert.Subject.CommonName; cn != konnectivity.ServerUser {
		return fmt.Errorf("it is of user %s, not of %s", cn, konnectivity.ServerUser)
	}
	if err := pki.VerifyTime(cert, n.Now()); err != nil {
		return err
	}
	return n.VerifyChain(cert, x509.ExtKeyUsageClientAuth)
}

// VerifyChain fails if the cluster's CA did not issue the certificate.
func (n Node) VerifyChain(cert *x509.Certificate, usage x509.ExtKeyUsage) error {
	ca, err := n.Read(n.caFile())
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	_, err = cert.Verify(x509.VerifyOptions{Roots: pool, CurrentTime: n.Now(), KeyUsages: []x509.ExtKeyUsage{usage}})
	return err
}

// verifyIssuer is VerifyChain without the validity period, which is reported separately.
func (n Node) verifyIssuer(cert *x509.Certificate, usage x509.ExtKeyUsage) error {
	ca, err := n.Read(n.caFile())
	if err != nil {
		return err
	}
	return VerifyIssuer(ca, cert, usage)
}

func (n Node) verifyTCPClient(tcp *v1alpha1.TCPTransport) func(*x509.Certificate) error {
	return func(c *x509.Certificate) error {
		ca, err := n.Read(tcp.ClientCA)
		if err != nil {
			return err
		}
		return errors.Join(checkClientName(tcp, c), VerifyIssuer(ca, c, x509.ExtKeyUsageClientAuth))
	}
}

// VerifyIssuer fails if none of the CAs issued the certificate. It ignores the validity period.
func VerifyIssuer(ca []byte, cert *x509.Certificate, usage x509.ExtKeyUsage) error {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	_, err := cert.Verify(x509.VerifyOptions{Roots: pool, CurrentTime: cert.NotAfter, KeyUsages: []x509.ExtKeyUsage{usage}})
	var invalid x509.CertificateInvalidError
	if errors.As(err, &invalid) && invalid.Reason == x509.Expired {
		return nil // the CA's expiry is reported with the CA
	}
	return err
}

// issuersOf returns those CAs that issued the client certificate in a file; all CAs if none
// did, or if the file cannot be read, as the reason may be with any of them.
func (n Node) issuersOf(clientCert string, cas []*x509.Certificate) []*x509.Certificate {
	data, err := n.Read(clientCert)
	if err != nil {
		return cas
	}
	cert, err := pki.ParseCert(data)
	if err != nil {
		return cas
	}
	var issuers []*x509.Certificate
	for _, ca := range cas {
		if VerifyIssuer(pki.EncodeCert(ca), cert, x509.ExtKeyUsageClientAuth) == nil {
			issuers = append(issuers, ca)
		}
	}
	if len(issuers) == 0 {
		return cas
	}
	return issuers
}

// checkClientName fails if the server does not accept the common name of kube-apiserver's client
// certificate.
func checkClientName(tcp *v1alpha1.TCPTransport, cert *x509.Certificate) error {
	if name := cert.Subject.CommonName; !slices.Contains(tcp.ClientNames, name) {
		return fmt.Errorf("the common name of %s is %q, and the server accepts %q: set konnectivity.transport.tcp.clientNames: [%q]",
			tcp.ClientCert, name, tcp.ClientNames, name)
	}
	return nil
}

// NameOf returns the common name, or the whole name if that is empty.
func NameOf(n pkix.Name) string {
	if n.CommonName != "" {
		return n.CommonName
	}
	return n.String()
}
