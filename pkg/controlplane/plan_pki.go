// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path"
	"slices"

	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/fileplan"
)

// authority reads the cluster's CA once, when the first certificate must be
// issued. A node without the CA's key can be installed as long as no certificate
// must be issued.
func (p *planner) authority() (authority, error) {
	if p.ca == nil && p.caErr == nil {
		var ca authority
		if ca, p.caErr = p.clusterCA(); p.caErr == nil {
			p.ca = &ca
		}
	}
	if p.caErr != nil {
		return authority{}, p.caErr
	}
	return *p.ca, nil
}

// planKubeconfig plans the server's kubeconfig and the client certificate in it,
// with mode 0600. It must be written before the static Pod manifest: otherwise
// the manifest's FileOrCreate mount creates an empty file with mode 0644, which
// every user of the node can read.
func (p *planner) planKubeconfig() {
	w := fileplan.File{
		Step: StepPKI, Path: p.bundle.Konnectivity.Server.Kubeconfig, Mode: 0o600, Secret: true,
		Good:   p.checkServerKubeconfig,
		Advice: "move it away, or set konnectivity.server.kubeconfig",
	}
	if p.opts.ServerKubeconfig != "" {
		data, _, err := p.optionFile(p.opts.ServerKubeconfig, "")
		if err == nil {
			err = p.checkServerKubeconfig(data)
		}
		if err != nil {
			p.Fail(fmt.Errorf("--server-kubeconfig %s: %w", p.opts.ServerKubeconfig, err))
			return
		}
		w.Data, w.Good = data, func(now []byte) error {
			if !bytes.Equal(now, data) {
				return errors.New("it is not the one given with --server-kubeconfig")
			}
			return nil
		}
	} else {
		w.Make = p.issueKubeconfig
	}
	p.Want(w)
}

func (p *planner) issueKubeconfig() ([]byte, error) {
	ca, err := p.authority()
	if err != nil {
		return nil, err
	}
	server := p.opts.Server
	if server == "" {
		server = "https://" + p.address
	}
	return konnectivity.ServerKubeconfigTrusting(p.bundle, ca.KeyPair, ca.trust, server, p.opts.Now())
}

// planServerCertificate makes sure that the certificate which the server
// presents to agents contains the host name or address that they dial.
func (p *planner) planServerCertificate() {
	k := &p.bundle.Konnectivity
	cert, key := k.Server.CertFile, k.Server.KeyFile
	if cert != path.Join(p.bundle.ControlPlane.PKIDir, "apiserver.crt") {
		p.ownCertificate(cert, key, k.ServerHost, konnectivity.ServerName)
		return
	}
	data, err := p.Read(cert)
	if err != nil {
		p.Fail(fmt.Errorf("%w: it is what the server shows agents: set konnectivity.server.certFile and keyFile to another", err))
		return
	}
	parsed, err := pki.ParseCert(data)
	if err != nil {
		p.Fail(fmt.Errorf("%s: %w", cert, err))
		return
	}
	if parsed.VerifyHostname(k.ServerHost) == nil {
		return
	}
	ca, err := p.authority()
	if err != nil {
		p.Fail(fmt.Errorf("%s does not name %s, which agents dial: issue it again, or set konnectivity.serverHost to a name that it has: %w",
			cert, k.ServerHost, err))
		return
	}
	issued, err := withName(parsed, ca.KeyPair, k.ServerHost)
	if err != nil {
		p.Fail(err)
		return
	}
	now, mode, err := p.Present(cert)
	if err != nil {
		p.Fail(err)
		return
	}
	p.Put(fileplan.File{Step: StepPKI, Path: cert, Mode: mode, Data: issued}, now, data)
}

// ownCertificate plans a certificate and key for one name. The cluster's CA
// issues them if neither file exists.
func (p *planner) ownCertificate(certFile, keyFile, host, commonName string) {
	if p.HasFile(certFile) && p.HasFile(keyFile) {
		p.Fail(p.checkCertificate(certFile, keyFile, host))
		p.Tighten(keyFile)
		return
	}
	if p.HasFile(certFile) || p.HasFile(keyFile) {
		p.Fail(fmt.Errorf("of %s and %s one is missing: move the other one away, then both are made", certFile, keyFile))
		return
	}
	ca, err := p.authority()
	if err != nil {
		p.Fail(fmt.Errorf("%s has to be made: %w", certFile, err))
		return
	}
	p.issuePair(ca.KeyPair, certFile, keyFile, serverRequest(host, commonName))
}

func serverRequest(host, commonName string) pki.Request {
	r := pki.Request{CommonName: commonName, Usages: pki.ServerAuth}
	if ip, err := netip.ParseAddr(host); err == nil {
		r.IPs = []net.IP{ip.AsSlice()}
	} else {
		r.DNSNames = []string{host}
	}
	return r
}

func (p *planner) issuePair(ca pki.KeyPair, certFile, keyFile string, r pki.Request) {
	if cert, key, ok := p.issue(ca, certFile, r); ok {
		p.Create(keyFile, key, 0o600, true)
		p.Create(certFile, cert, 0o644, false)
	}
}

// issue issues a certificate for the given file, and generates its key.
func (p *planner) issue(ca pki.KeyPair, certFile string, r pki.Request) (cert, key []byte, ok bool) {
	pair, err := ca.Issue(pki.FromBundle(p.bundle), r, p.opts.Now())
	if err == nil {
		key, err = pair.KeyPEM()
	}
	if err != nil {
		p.Fail(fmt.Errorf("%s: %w", certFile, err))
		return nil, nil, false
	}
	return pair.CertPEM(), key, true
}

func (p *planner) checkCertificate(certFile, keyFile, host string) error {
	cert, err := p.Read(certFile)
	if err != nil {
		return err
	}
	key, err := p.Read(keyFile)
	if err != nil {
		return err
	}
	pair, err := pki.ParseKeyPair(cert, key)
	if err != nil {
		return fmt.Errorf("%s, %s: %w", certFile, keyFile, err)
	}
	if err := pki.VerifyTime(pair.Cert, p.opts.Now()); err != nil {
		return fmt.Errorf("%s: %w", certFile, err)
	}
	if err := pair.Cert.VerifyHostname(host); err != nil {
		return fmt.Errorf("%s: %w: give one that has it, or move both files away to have them made", certFile, err)
	}
	if err := p.verifyChain(pair.Cert, x509.ExtKeyUsageServerAuth); err != nil {
		return fmt.Errorf("%s: %w: agents trust the cluster's CA only", certFile, err)
	}
	return nil
}

// planTCP plans the certificates of the connection between kube-apiserver and
// the server, if its transport is TCP. Client certificates get a CA of their
// own: the cluster's CA also signs the certificates of kubelets, which must not
// connect to the tunnel. The CA's key is not kept, as a renewal creates a new CA
// and trusts both.
func (p *planner) planTCP() {
	tcp := p.bundle.Konnectivity.Transport.TCP
	if tcp == nil {
		return
	}
	if name := tcpServerName(tcp.URL, tcp.TLSServerName); tcp.ServerCert == p.bundle.Konnectivity.Server.CertFile {
		p.Fail(p.checkTCPName(tcp.ServerCert, name))
	} else {
		p.ownCertificate(tcp.ServerCert, tcp.ServerKey, name, konnectivity.ServerName)
	}
	if tcp.CABundle != "" && !p.HasFile(tcp.CABundle) {
		p.Fail(fmt.Errorf("konnectivity.transport.tcp.caBundle: %s does not exist: the cluster's CA is %s/ca.crt", tcp.CABundle, p.bundle.ControlPlane.PKIDir))
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
		p.Tighten(tcp.ClientKey)
		p.Fail(p.checkClientName(tcp))
	case 0:
		p.issueClient(tcp)
	default:
		p.Fail(fmt.Errorf("of %v some are missing: move the others away, then all are made", files))
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
func (p *planner) checkTCPName(certFile, name string) error {
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

// checkClientName checks that kube-apiserver's client certificate has a common
// name that the server accepts.
func (p *planner) checkClientName(tcp *v1alpha1.TCPTransport) error {
	data, err := p.Read(tcp.ClientCert)
	if err != nil {
		return err
	}
	cert, err := pki.ParseCert(data)
	if err != nil {
		return fmt.Errorf("konnectivity.transport.tcp.clientCert: %s: %w", tcp.ClientCert, err)
	}
	return clientName(tcp, cert)
}

func clientName(tcp *v1alpha1.TCPTransport, cert *x509.Certificate) error {
	if name := cert.Subject.CommonName; !slices.Contains(tcp.ClientNames, name) {
		return fmt.Errorf("the common name of %s is %q, and the server accepts %q: set konnectivity.transport.tcp.clientNames: [%q]",
			tcp.ClientCert, name, tcp.ClientNames, name)
	}
	return nil
}

func (p *planner) issueClient(tcp *v1alpha1.TCPTransport) {
	config := pki.FromBundle(p.bundle)
	ca, err := pki.NewCA(config, "konnectivity-client-ca", p.opts.Now())
	if err != nil {
		p.Fail(err)
		return
	}
	p.Create(tcp.ClientCA, ca.CertPEM(), 0o644, false)
	p.issuePair(ca, tcp.ClientCert, tcp.ClientKey, pki.Request{CommonName: tcp.ClientNames[0], Usages: pki.ClientAuth})
}
