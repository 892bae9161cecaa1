// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/journal"
)

// RenewOptions configure what to renew.
type RenewOptions struct {
	Options
	// Before limits the renewal to certificates that expire within this time; 0
	// renews all.
	Before time.Duration
	// Restart controls whether the server is restarted: "auto" (only if its image
	// cannot reload renewed files), "always" or "never".
	Restart string
}

// Renewal is the result of Renew, or of its dry run.
type Renewal struct {
	Result
	// Restarted: the server was restarted, which breaks the connections through it.
	Restarted bool `json:"restarted,omitempty"`
	// Notes lists the steps that remain for the user or for another program.
	Notes []string `json:"notes,omitempty"`
}

// Renew reissues the tunnel's certificates on this node. Old and new certificates
// are both accepted until the old ones expire, so no dial fails. This release's
// server reloads renewed files while it runs; any other server is restarted.
func Renew(ctx context.Context, o RenewOptions) (Renewal, error) {
	if !slices.Contains([]string{"", "auto", "always", "never"}, o.Restart) {
		return Renewal{}, preflightError(fmt.Errorf("--restart %q: choose auto, always or never", o.Restart))
	}
	o.Options = o.Options.defaulted()
	n := newNode(o.Options)
	if err := n.checkNode(); err != nil {
		return Renewal{}, preflightError(err)
	}
	unlock, err := journal.Lock(n.Host)
	if err != nil {
		return Renewal{}, preflightError(err)
	}
	defer unlock()
	desired := fmt.Sprintf("%s %s %s", OpRenew, o.Before, o.Restart)
	if r, done, err := n.resumeRenewal(ctx, desired); err != nil || done {
		return r, err
	}
	if err := n.checkCluster(ctx); err != nil {
		return Renewal{}, preflightError(err)
	}
	n.connect()
	j := &journal.Journal{Operation: OpRenew, Desired: desired, Started: n.opts.Now(), Cluster: n.cluster(ctx), Steps: []Step{StepPKI, StepServer}}
	after := &State{}
	if n.state != nil {
		after = n.state.Clone()
		after.Cluster = j.Cluster
		j.State = after
	}
	p := newPlanner(n, j, after)
	r := Renewal{}
	p.renewAll(o, &r)
	if err := p.Err(); err != nil {
		return Renewal{}, preflightError(err)
	}
	if len(p.Journal.Changes) == 0 {
		return r, nil
	}
	if err := p.restartServer(ctx, o.Restart, &r); err != nil {
		return Renewal{}, preflightError(err)
	}
	r.Result, err = n.run(ctx, p.Journal)
	if err != nil {
		r.Restarted = false
	}
	return r, err
}

// resumeRenewal completes a killed renewal if this run requests the same one, and
// rolls it back otherwise.
func (n *node) resumeRenewal(ctx context.Context, desired string) (r Renewal, done bool, err error) {
	j, err := n.interrupted()
	if err == nil {
		err = j.NotOthers()
	}
	if err != nil {
		return Renewal{}, false, preflightError(err)
	}
	r.Result, done, err = n.resume(ctx, OpRenew, desired)
	r.Restarted = err == nil && slices.Contains(r.Files, serverManifest(n.bundle))
	return r, done, err
}

// due reports whether a certificate must be renewed.
func (p *planner) due(f certFile, before time.Duration) bool {
	if before <= 0 {
		return true
	}
	for _, c := range p.inspectFile(f, before) {
		if c.State != CertGood {
			return true
		}
	}
	return false
}

func (p *planner) renewAll(o RenewOptions, r *Renewal) {
	k := &p.bundle.Konnectivity
	kubeconfig := certFile{path: k.Server.Kubeconfig, key: k.Server.Kubeconfig, kubeconfig: true}
	if p.due(kubeconfig, o.Before) || p.trustsOthers(kubeconfig.path) {
		p.renewKubeconfig(r)
	}
	own := []struct{ cert, key, host string }{}
	if p.renewalOf(k.Server.CertFile) == byFairlead {
		own = append(own, struct{ cert, key, host string }{k.Server.CertFile, k.Server.KeyFile, k.ServerHost})
	} else {
		r.Notes = append(r.Notes, fmt.Sprintf("%s is kubeadm's: \"%s\" renews it and keeps its names", k.Server.CertFile, byKubeadm))
	}
	if tcp := k.Transport.TCP; tcp != nil {
		if len(p.caKeys()) > 1 {
			r.Notes = append(r.Notes, "kube-apiserver reads its egress selector's CAs only when it starts: it must have been restarted since ca.crt has held both, or it refuses "+tcp.ServerCert)
		}
		if tcp.ServerCert != k.Server.CertFile {
			own = append(own, struct{ cert, key, host string }{tcp.ServerCert, tcp.ServerKey, tcpServerName(tcp.URL, tcp.TLSServerName)})
		}
		if p.due(certFile{path: tcp.ClientCert, key: tcp.ClientKey}, o.Before) || p.due(certFile{path: tcp.ClientCA}, o.Before) {
			p.renewClient(tcp, r)
		}
	}
	for _, f := range own {
		if !p.due(certFile{path: f.cert, key: f.key}, o.Before) {
			continue
		}
		ca, err := p.authority()
		if err != nil {
			p.Fail(fmt.Errorf("%s: %w", f.cert, err))
			return
		}
		p.reissue(ca.KeyPair, f.cert, f.key, serverRequest(f.host, konnectivity.ServerName))
	}
}

// renewKubeconfig issues the kubeconfig again and keeps the API server's URL. It
// writes the file in place: the Pod has it mounted as a single file, and a file bind
// mount keeps the old inode, so the Pod would not see a replaced file.
func (p *planner) renewKubeconfig(r *Renewal) {
	file := p.bundle.Konnectivity.Server.Kubeconfig
	data, err := p.Read(file)
	if err != nil {
		p.Fail(fmt.Errorf("%w: install first", err))
		return
	}
	cert, server, err := kubeconfigIdentity(data)
	if err != nil {
		p.Fail(fmt.Errorf("%s: %w", file, err))
		return
	}
	if cert == nil {
		r.Notes = append(r.Notes, file+" uses no certificate: renew it where it was made")
		return
	}
	ca, err := p.authority()
	if err != nil {
		p.Fail(fmt.Errorf("%s: %w", file, err))
		return
	}
	fresh, err := konnectivity.ServerKubeconfigTrusting(p.bundle, ca.KeyPair, ca.trust, server, p.opts.Now())
	if err != nil {
		p.Fail(err)
		return
	}
	if p.Replace(StepPKI, file, fresh, true) {
		p.Journal.Changes[len(p.Journal.Changes)-1].InPlace = true
	}
	if n := len(p.caKeys()); n > 1 {
		r.Notes = append(r.Notes, fmt.Sprintf("the cluster's CA is being rotated: %s now trusts all %d CAs of ca.crt; run this again when the old one is out of ca.crt", file, n))
	}
}

// trustsOthers reports whether a kubeconfig trusts other CAs than ca.crt has, as
// during a rotation of the cluster's CA, and can be reissued here.
func (p *planner) trustsOthers(file string) bool {
	data, err := p.Read(file)
	if err != nil {
		return false
	}
	trusted := keysOf(kubeconfigTrust(data))
	if len(trusted) == 0 || slices.Equal(trusted, p.caKeys()) {
		return false
	}
	_, err = p.authority()
	return err == nil
}

func (p *planner) reissue(ca pki.KeyPair, certFile, keyFile string, request pki.Request) {
	if cert, key, ok := p.issue(ca, certFile, request); ok {
		p.Replace(StepPKI, keyFile, key, true)
		p.Replace(StepPKI, certFile, cert, false)
	}
}

// renewClient creates a new CA for kube-apiserver's client certificate, and issues a
// certificate of that CA. The CA's key is not kept. The server goes on accepting the
// old CA until that expires, because kube-apiserver reads its certificate only when
// it starts.
func (p *planner) renewClient(tcp *v1alpha1.TCPTransport, r *Renewal) {
	ca, err := pki.NewCA(pki.FromBundle(p.bundle), "konnectivity-client-ca", p.opts.Now())
	if err != nil {
		p.Fail(err)
		return
	}
	bundle := ca.CertPEM()
	old, err := p.Read(tcp.ClientCA)
	if err == nil {
		certs, parseErr := parseCerts(old)
		if parseErr != nil {
			p.Fail(fmt.Errorf("%s: %w", tcp.ClientCA, parseErr))
			return
		}
		for _, c := range certs {
			if p.opts.Now().Before(c.NotAfter) {
				bundle = append(bundle, pki.EncodeCert(c)...)
			}
		}
	}
	p.Replace(StepPKI, tcp.ClientCA, bundle, false)
	p.reissue(ca, tcp.ClientCert, tcp.ClientKey, pki.Request{CommonName: tcp.ClientNames[0], Usages: pki.ClientAuth})
	r.Notes = append(r.Notes, fmt.Sprintf("kube-apiserver reads %s only when it starts: the old one goes on working until it expires, so restart kube-apiserver before that",
		tcp.ClientCert))
}
