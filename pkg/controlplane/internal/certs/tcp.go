// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"fmt"
	"net/url"

	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// planTCP plans the certificates of the connection between kube-apiserver and
// the server, if its transport is TCP. Client certificates get a CA of their
// own: the cluster's CA also signs the certificates of kubelets, which must not
// connect to the tunnel. The CA's key is not kept, as a renewal creates a new CA
// and trusts both.
func (p *Planner) planTCP() {
	tcp := p.Bundle.Konnectivity.Transport.TCP
	if tcp == nil {
		return
	}
	if name := tcpServerName(tcp.URL, tcp.TLSServerName); tcp.ServerCert == p.Bundle.Konnectivity.Server.CertFile {
		p.Plan.Fail(p.checkTCPName(tcp.ServerCert, name))
	} else {
		p.ownCertificate(tcp.ServerCert, tcp.ServerKey, name, konnectivity.ServerName)
	}
	if tcp.CABundle != "" && !p.HasFile(tcp.CABundle) {
		p.Plan.Fail(fmt.Errorf("konnectivity.transport.tcp.caBundle: %s does not exist: the cluster's CA is %s/ca.crt", tcp.CABundle, p.Bundle.ControlPlane.PKIDir))
	}
	files := []string{tcp.ClientCA, tcp.ClientCert, tcp.ClientKey}
	there := 0
	for _, f := range files {
		if p.HasFile(f) {
			there++
		}
	}
	switch there {
	case len(files):
		p.Plan.Tighten(tcp.ClientKey)
		p.Plan.Fail(p.checkClient(tcp))
	case 0:
		p.issueClient(tcp)
	default:
		p.Plan.Fail(fmt.Errorf("of %v some are missing: move the others away, then all are made", files))
	}
}

func tcpServerName(rawURL, serverName string) string {
	if serverName != "" {
		return serverName
	}
	u, err := url.Parse(rawURL)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

// checkTCPName checks that the certificate which the server presents to
// kube-apiserver contains the name that kube-apiserver verifies.
func (p *Planner) checkTCPName(certFile, name string) error {
	data, err := p.Read(certFile)
	if err != nil {
		return nil //nolint:nilerr // planServerCertificate says so, or makes it
	}
	cert, err := pki.ParseCert(data)
	if err != nil || cert.VerifyHostname(name) == nil {
		return err
	}
	return fmt.Errorf("konnectivity.transport.tcp.url: %s is not a name of %s: set tlsServerName to one of %v", name, certFile, cert.DNSNames)
}

// checkClient checks that kube-apiserver's client certificate has a common
// name that the server accepts.
func (p *Planner) checkClient(tcp *v1alpha1.TCPTransport) error {
	data, err := p.Read(tcp.ClientCert)
	if err != nil {
		return err
	}
	cert, err := pki.ParseCert(data)
	if err != nil {
		return fmt.Errorf("konnectivity.transport.tcp.clientCert: %s: %w", tcp.ClientCert, err)
	}
	return checkClientName(tcp, cert)
}

func (p *Planner) issueClient(tcp *v1alpha1.TCPTransport) {
	config := pki.FromBundle(p.Bundle)
	ca, err := pki.NewCA(config, "konnectivity-client-ca", p.Now())
	if err != nil {
		p.Plan.Fail(err)
		return
	}
	p.Plan.Create(tcp.ClientCA, ca.CertPEM(), 0o644, false)
	p.issuePair(ca, tcp.ClientCert, tcp.ClientKey, pki.Request{CommonName: tcp.ClientNames[0], Usages: pki.ClientAuth})
}
