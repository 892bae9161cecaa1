// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"

	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/fileplan"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/journal"
)

// Planner plans the files with certificates: it issues those that are missing or that must be
// renewed.
type Planner struct {
	Node
	// Plan receives the files.
	Plan *fileplan.Plan
	// CACert and CAKey are files of this machine with the cluster's CA; "" means the
	// files in the node's PKI directory.
	CACert, CAKey string
	// ServerKubeconfig is a ready-made kubeconfig of the Konnectivity server, a file of
	// this machine; "" means to issue one.
	ServerKubeconfig string
	// Server is the API server's URL in an issued kubeconfig.
	Server string

	ca    *Authority
	caErr error
	notes []string
}

// Install plans every file with certificates that the bundle needs.
func (p *Planner) Install() {
	p.planKubeconfig()
	p.planServerCertificate()
	p.planTCP()
}

// authority reads the cluster's CA once, when the first certificate must be
// issued. A node without the CA's key can be installed as long as no certificate
// must be issued.
func (p *Planner) authority() (Authority, error) {
	if p.ca == nil && p.caErr == nil {
		var ca Authority
		if ca, p.caErr = p.Node.Authority(p.CACert, p.CAKey); p.caErr == nil {
			p.ca = &ca
		}
	}
	if p.caErr != nil {
		return Authority{}, p.caErr
	}
	return *p.ca, nil
}

// planKubeconfig plans the server's kubeconfig and the client certificate in it,
// with mode 0600. It must be written before the static Pod manifest: otherwise
// the manifest's FileOrCreate mount creates an empty file with mode 0644, which
// every user of the node can read.
func (p *Planner) planKubeconfig() {
	w := fileplan.File{
		Step: journal.StepPKI, Path: p.Bundle.Konnectivity.Server.Kubeconfig, Mode: 0o600, Secret: true, InPlace: true,
		Good:   p.CheckServerKubeconfig,
		Advice: "move it away, or set konnectivity.server.kubeconfig",
	}
	if p.ServerKubeconfig != "" {
		data, _, err := p.ReadGiven(p.ServerKubeconfig, "")
		if err == nil {
			err = p.CheckServerKubeconfig(data)
		}
		if err != nil {
			p.Plan.Fail(fmt.Errorf("--server-kubeconfig %s: %w", p.ServerKubeconfig, err))
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
	p.Plan.Want(w)
}

func (p *Planner) issueKubeconfig() ([]byte, error) {
	ca, err := p.authority()
	if err != nil {
		return nil, err
	}
	return konnectivity.ServerKubeconfigTrusting(p.Bundle, ca.KeyPair, ca.Trust, p.Server, p.Now())
}

// planServerCertificate makes sure that the certificate which the server
// presents to agents contains the host name or address that they dial.
func (p *Planner) planServerCertificate() {
	k := &p.Bundle.Konnectivity
	cert, key := k.Server.CertFile, k.Server.KeyFile
	if cert != p.apiServerCert() {
		p.ownCertificate(cert, key, k.ServerHost, konnectivity.ServerName)
		return
	}
	data, err := p.Read(cert)
	if err != nil {
		p.Plan.Fail(fmt.Errorf("%w: it is what the server shows agents: set konnectivity.server.certFile and keyFile to another", err))
		return
	}
	parsed, err := pki.ParseCert(data)
	if err != nil {
		p.Plan.Fail(fmt.Errorf("%s: %w", cert, err))
		return
	}
	if parsed.VerifyHostname(k.ServerHost) == nil {
		return
	}
	ca, err := p.authority()
	if err != nil {
		p.Plan.Fail(fmt.Errorf("%s does not name %s, which agents dial: issue it again, or set konnectivity.serverAddresses[0].host to a name that it has: %w",
			cert, k.ServerHost, err))
		return
	}
	issued, err := withName(parsed, ca.KeyPair, k.ServerHost)
	if err != nil {
		p.Plan.Fail(err)
		return
	}
	now, mode, err := p.Present(cert)
	if err != nil {
		p.Plan.Fail(err)
		return
	}
	p.Plan.Put(fileplan.File{Step: journal.StepPKI, Path: cert, Mode: mode, Data: issued}, now, data)
}

// ownCertificate plans a certificate and key for one name. The cluster's CA
// issues them if neither file exists.
func (p *Planner) ownCertificate(certFile, keyFile, host, commonName string) {
	if p.HasFile(certFile) && p.HasFile(keyFile) {
		p.Plan.Fail(p.checkCertificate(certFile, keyFile, host))
		p.Plan.Tighten(keyFile)
		return
	}
	if p.HasFile(certFile) || p.HasFile(keyFile) {
		p.Plan.Fail(fmt.Errorf("only one of %s and %s exists: restore the other one, or move this one away to have both generated", certFile, keyFile))
		return
	}
	ca, err := p.authority()
	if err != nil {
		p.Plan.Fail(fmt.Errorf("generate %s: %w", certFile, err))
		return
	}
	p.issuePair(ca.KeyPair, certFile, keyFile, ServerRequest(host, commonName))
}

func (p *Planner) checkCertificate(certFile, keyFile, host string) error {
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
	if err := pki.VerifyTime(pair.Cert, p.Now()); err != nil {
		return fmt.Errorf("%s: %w", certFile, err)
	}
	if err := pair.Cert.VerifyHostname(host); err != nil {
		return fmt.Errorf("%s: %w: give one that has it, or move both files away to have them made", certFile, err)
	}
	if err := p.VerifyChain(pair.Cert, x509.ExtKeyUsageServerAuth); err != nil {
		return fmt.Errorf("%s: %w: agents trust the cluster's CA only", certFile, err)
	}
	return nil
}

func (p *Planner) issuePair(ca pki.KeyPair, certFile, keyFile string, r pki.Request) {
	if cert, key, ok := p.issue(ca, certFile, r); ok {
		p.Plan.Create(keyFile, key, 0o600, true)
		p.Plan.Create(certFile, cert, 0o644, false)
	}
}

// issue issues a certificate for the given file, and generates its key.
func (p *Planner) issue(ca pki.KeyPair, certFile string, r pki.Request) (cert, key []byte, ok bool) {
	pair, err := ca.Issue(pki.FromBundle(p.Bundle), r, p.Now())
	if err == nil {
		key, err = pair.KeyPEM()
	}
	if err != nil {
		p.Plan.Fail(fmt.Errorf("%s: %w", certFile, err))
		return nil, nil, false
	}
	return pair.CertPEM(), key, true
}
