// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"fmt"
	"slices"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/journal"
)

// Renew plans to reissue the certificates that expire within the given time; 0 means
// all. It returns the steps that remain for the user or for another program.
func (p *Planner) Renew(before time.Duration) (notes []string) {
	p.notes = nil
	p.renewAll(before)
	return p.notes
}

func (p *Planner) note(format string, args ...any) {
	p.notes = append(p.notes, fmt.Sprintf(format, args...))
}

// due reports whether a certificate must be renewed.
func (p *Planner) due(f certFile, before time.Duration) bool {
	if before <= 0 {
		return true
	}
	for _, c := range p.inspectFile(f, before) {
		if c.State != Good {
			return true
		}
	}
	return false
}

func (p *Planner) renewAll(before time.Duration) {
	k := &p.Bundle.Konnectivity
	kubeconfig := certFile{path: k.Server.Kubeconfig, key: k.Server.Kubeconfig, kubeconfig: true}
	if p.due(kubeconfig, before) || p.trustsOthers(kubeconfig.path) {
		p.renewKubeconfig()
	}
	own := []servingCert{{k.Server.CertFile, k.Server.KeyFile, k.ServerHost}}
	if tcp := k.Transport.TCP; tcp != nil {
		if len(p.CAKeys()) > 1 {
			p.note("kube-apiserver reads its egress selector's CAs only when it starts: it must have been restarted since ca.crt has held both, or it refuses %s", tcp.ServerCert)
		}
		if tcp.ServerCert != k.Server.CertFile {
			own = append(own, servingCert{tcp.ServerCert, tcp.ServerKey, tcpServerName(tcp.URL, tcp.TLSServerName)})
		}
		if p.due(certFile{path: tcp.ClientCert, key: tcp.ClientKey}, before) || p.due(p.clientCA(tcp), before) {
			p.renewClient(tcp)
		}
	}
	for _, f := range own {
		if renewal := p.renewalOf(f.cert, f.key); renewal != byFairlead {
			p.noteOther(f.cert, renewal)
			continue
		}
		if !p.due(certFile{path: f.cert, key: f.key}, before) {
			continue
		}
		ca, err := p.authority()
		if err != nil {
			p.Plan.Fail(fmt.Errorf("%s: %w", f.cert, err))
			return
		}
		p.reissue(ca.KeyPair, f.cert, f.key, ServerRequest(f.host, konnectivity.ServerName))
	}
}

// servingCert is a certificate that the server presents, with the name that clients verify.
type servingCert struct{ cert, key, host string }

// noteOther notes that this program does not renew a certificate.
func (p *Planner) noteOther(cert, renewal string) {
	if renewal == byHand {
		p.note("%s is not renewed, as that would replace a key or a CA that kubeadm made: renew it where it was made", cert)
		return
	}
	p.note("%s is kubeadm's: \"%s\" renews it and keeps its names", cert, renewal)
}

// renewKubeconfig issues the kubeconfig again and keeps the API server's URL. It
// writes the file in place: the Pod has it mounted as a single file, and a file bind
// mount keeps the old inode, so the Pod would not see a replaced file.
func (p *Planner) renewKubeconfig() {
	file := p.Bundle.Konnectivity.Server.Kubeconfig
	data, err := p.Read(file)
	if err != nil {
		p.Plan.Fail(fmt.Errorf("%w: install first", err))
		return
	}
	cert, server, err := Identity(data)
	if err != nil {
		p.Plan.Fail(fmt.Errorf("%s: %w", file, err))
		return
	}
	if cert == nil {
		p.note("%s contains no certificate: renew it where it was made", file)
		p.Plan.Tighten(file)
		return
	}
	ca, err := p.authority()
	if err != nil {
		p.Plan.Fail(fmt.Errorf("%s: %w", file, err))
		return
	}
	fresh, err := konnectivity.ServerKubeconfigTrusting(p.Bundle, ca.KeyPair, ca.Trust, server, p.Now())
	if err != nil {
		p.Plan.Fail(err)
		return
	}
	if p.Plan.Replace(journal.StepPKI, file, fresh, true) {
		p.Plan.Journal.Changes[len(p.Plan.Journal.Changes)-1].InPlace = true
	}
	if n := len(p.CAKeys()); n > 1 {
		p.note("the cluster's CA is being rotated: %s now trusts all %d CAs of ca.crt; run this again when the old one is out of ca.crt", file, n)
	}
}

// trustsOthers reports whether a kubeconfig trusts other CAs than ca.crt has, as
// during a rotation of the cluster's CA, and can be reissued here.
func (p *Planner) trustsOthers(file string) bool {
	data, err := p.Read(file)
	if err != nil {
		return false
	}
	trusted := Keys(Trust(data))
	if len(trusted) == 0 || slices.Equal(trusted, p.CAKeys()) {
		return false
	}
	_, err = p.authority()
	return err == nil
}

func (p *Planner) reissue(ca pki.KeyPair, certFile, keyFile string, request pki.Request) {
	if cert, key, ok := p.issue(ca, certFile, request); ok {
		p.Plan.Replace(journal.StepPKI, keyFile, key, true)
		p.Plan.Replace(journal.StepPKI, certFile, cert, false)
	}
}

// renewClient creates a new CA for kube-apiserver's client certificate, and issues a
// certificate of that CA. The CA's key is not kept. The server goes on accepting the
// old CA until that expires, because kube-apiserver reads its certificate only when
// it starts.
func (p *Planner) renewClient(tcp *v1alpha1.TCPTransport) {
	if renewal := p.renewalOfClient(tcp); renewal != byFairlead {
		p.noteOther(tcp.ClientCert, renewal)
		return
	}
	ca, err := pki.NewCA(pki.FromBundle(p.Bundle), "konnectivity-client-ca", p.Now())
	if err != nil {
		p.Plan.Fail(err)
		return
	}
	bundle := ca.CertPEM()
	old, err := p.Read(tcp.ClientCA)
	if err == nil {
		certs, parseErr := pki.ParseCerts(old)
		if parseErr != nil {
			p.Plan.Fail(fmt.Errorf("%s: %w", tcp.ClientCA, parseErr))
			return
		}
		for _, c := range certs {
			if p.Now().Before(c.NotAfter) {
				bundle = append(bundle, pki.EncodeCert(c)...)
			}
		}
	}
	p.Plan.Replace(journal.StepPKI, tcp.ClientCA, bundle, false)
	p.reissue(ca, tcp.ClientCert, tcp.ClientKey, pki.Request{CommonName: tcp.ClientNames[0], Usages: pki.ClientAuth})
	p.note("kube-apiserver reads %s only when it starts: the old one goes on working until it expires, so restart kube-apiserver before that",
		tcp.ClientCert)
}
