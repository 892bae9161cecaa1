// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"crypto"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/bundle/apiserver"
	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
	"github.com/fairlead-dev/fairlead/pkg/cluster"
)

// authorities are the cluster's CAs, a separate one for each purpose, and the
// key that signs service account tokens. They are created once. Everything that
// they sign is issued again at every start of the cluster, so only they can
// expire.
type authorities struct {
	cluster, etcd, frontProxy pki.KeyPair
	serviceAccounts           crypto.Signer
}

// loadAuthorities reads the CAs, or creates them for a new cluster.
func (p *plan) loadAuthorities(now time.Time) (authorities, error) {
	var a authorities
	var err error
	cfg := pki.FromBundle(p.bundle)
	for _, ca := range []struct {
		pair       *pki.KeyPair
		file, name string
	}{
		{&a.cluster, "ca", "kubernetes"},
		{&a.etcd, "etcd/ca", "etcd-ca"},
		{&a.frontProxy, "front-proxy-ca", "front-proxy-ca"},
	} {
		if *ca.pair, err = p.loadCA(cfg, ca.file, ca.name, now); err != nil {
			return a, err
		}
	}
	if err := pki.VerifyDistinct(a.cluster.Cert, a.frontProxy.Cert); err != nil {
		return a, p.badPKI("front-proxy-ca", err)
	}
	a.serviceAccounts, err = p.loadSigningKey(cfg)
	return a, err
}

func (p *plan) loadCA(cfg pki.Config, file, commonName string, now time.Time) (pki.KeyPair, error) {
	certPEM, err := os.ReadFile(p.PKI(file + ".crt"))
	if errors.Is(err, os.ErrNotExist) && p.state.Phase == cluster.PhaseCreating {
		ca, err := pki.NewCA(cfg, commonName, now)
		if err != nil {
			return ca, err
		}
		return ca, p.writePair(file, ca)
	}
	if err != nil {
		return pki.KeyPair{}, p.badPKI(file, err)
	}
	keyPEM, err := os.ReadFile(p.PKI(file + ".key"))
	if err != nil {
		return pki.KeyPair{}, p.badPKI(file, err)
	}
	ca, err := pki.ParseKeyPair(certPEM, keyPEM)
	if err == nil {
		err = pki.VerifyCA(ca, now)
	}
	if err != nil {
		return ca, p.badPKI(file, err)
	}
	return ca, nil
}

// badPKI tells the user what to do about an unusable CA.
func (p *plan) badPKI(file string, err error) error {
	return fmt.Errorf("cluster %q cannot be started: its CA %s: %w: recreate the cluster with \"fairlead down --name %s\" and \"up\"",
		p.Name, p.PKI(file+".crt"), err, p.Name)
}

// loadSigningKey reads or creates the key of service account tokens.
func (p *plan) loadSigningKey(cfg pki.Config) (crypto.Signer, error) {
	keyPEM, err := os.ReadFile(p.PKI("sa.key"))
	switch {
	case err == nil:
		key, err := pki.ParseKey(keyPEM)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", p.PKI("sa.key"), err)
		}
		return key, nil
	case !errors.Is(err, os.ErrNotExist) || p.state.Phase != cluster.PhaseCreating:
		return nil, fmt.Errorf("reading the key of service-account tokens: %w", err)
	}
	key, err := pki.NewServiceAccountKey(cfg)
	if err != nil {
		return nil, err
	}
	if keyPEM, err = pki.EncodeKey(key); err != nil {
		return nil, err
	}
	publicPEM, err := pki.EncodePublicKey(key)
	if err != nil {
		return nil, err
	}
	if err := writeFile(p.PKI("sa.pub"), publicPEM, 0o644); err != nil {
		return nil, err
	}
	return key, writeFile(p.PKI("sa.key"), keyPEM, 0o600)
}

// certificate is a certificate that is issued at every start.
type certificate struct {
	file    string
	ca      pki.KeyPair
	request pki.Request
}

// certificates lists the certificates that the programs present to each other.
func (p *plan) certificates(a authorities) []certificate {
	here := []net.IP{net.ParseIP(loopback)}
	names := []string{
		"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
	}
	return []certificate{
		{"apiserver", a.cluster, pki.Request{
			CommonName: "kube-apiserver", DNSNames: names, IPs: append(here, net.ParseIP(serviceIP)), Usages: pki.ServerAuth,
		}},
		{"apiserver-kubelet-client", a.cluster, pki.Request{CommonName: kubeletClient, Usages: pki.ClientAuth}},
		{"kubelet", a.cluster, pki.Request{
			CommonName: "system:node:simulated", IPs: append(here, net.ParseIP(p.state.HostIP)), Usages: pki.ServerAuth,
		}},
		{"components", a.cluster, pki.Request{
			CommonName: "fairlead-components", DNSNames: names[:1], IPs: here, Usages: pki.ServerAuth,
		}},
		{"etcd/server", a.etcd, pki.Request{
			CommonName: "etcd", DNSNames: names[:1], IPs: here, Usages: pki.ServerAuth | pki.ClientAuth,
		}},
		{"apiserver-etcd-client", a.etcd, pki.Request{CommonName: "kube-apiserver-etcd-client", Usages: pki.ClientAuth}},
		{"front-proxy-client", a.frontProxy, apiserver.FrontProxyRequest(p.bundle)},
	}
}

// issueCertificates writes all certificates and keys except those of the CAs.
func (p *plan) issueCertificates(a authorities, now time.Time) error {
	cfg := pki.FromBundle(p.bundle)
	for _, c := range p.certificates(a) {
		pair, err := c.ca.Issue(cfg, c.request, now)
		if err != nil {
			return fmt.Errorf("issuing %s: %w", c.file, err)
		}
		if err := p.writePair(c.file, pair); err != nil {
			return err
		}
	}
	return nil
}

// writePair writes the key, then the certificate.
func (p *plan) writePair(file string, pair pki.KeyPair) error {
	keyPEM, err := pair.KeyPEM()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(p.PKI(file)), 0o700); err != nil {
		return fmt.Errorf("writing certificates: %w", err)
	}
	if err := writeFile(p.PKI(file+".key"), keyPEM, 0o600); err != nil {
		return err
	}
	return writeFile(p.PKI(file+".crt"), pair.CertPEM(), 0o644)
}

// issueKubeconfigs writes the kubeconfig of every identity that has a client certificate.
func (p *plan) issueKubeconfigs(a authorities, now time.Time) error {
	cfg := pki.FromBundle(p.bundle)
	for who, request := range map[string]pki.Request{
		"admin":               {CommonName: "kubernetes-admin", Organizations: []string{"system:masters"}},
		progControllerManager: {CommonName: "system:kube-controller-manager"},
		progScheduler:         {CommonName: "system:kube-scheduler"},
		// kwok simulates all kubelets at once, which needs more permissions
		// than any one role grants.
		progKwok: {CommonName: "fairlead-kwok", Organizations: []string{"system:masters"}},
	} {
		request.Usages = pki.ClientAuth
		client, err := a.cluster.Issue(cfg, request, now)
		if err != nil {
			return fmt.Errorf("issuing a certificate for %s: %w", who, err)
		}
		data, err := pki.Kubeconfig(pki.KubeconfigRequest{
			Cluster: "kubernetes", Server: p.serverURL(), CA: a.cluster.CertPEM(),
			User: request.CommonName, Client: client, Context: request.CommonName + "@kubernetes",
		})
		if err != nil {
			return err
		}
		if err := writeFile(p.Kubeconfig(who), data, 0o600); err != nil {
			return err
		}
	}
	return nil
}
