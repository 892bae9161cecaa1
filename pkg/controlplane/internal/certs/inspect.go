// SPDX-License-Identifier: Apache-2.0

// Package certs inspects, issues and renews the certificates that the tunnel uses on a control
// plane node. Start at [Node].
package certs

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/nodefs"
)

// States of a certificate.
const (
	Good     = "good"
	Expiring = "expires soon"
	Expired  = "expired"
	Invalid  = "invalid"
	Missing  = "missing"
	// Exposed: users other than root can read the private key.
	Exposed = "exposed"
)

// Certificate is a certificate that the tunnel uses on this node.
type Certificate struct {
	Path string `json:"path"`
	// Use says what it is for.
	Use string `json:"use"`
	// Subject and Issuer are common names.
	Subject string `json:"subject,omitempty"`
	Issuer  string `json:"issuer,omitempty"`
	// Expires is the time of expiry.
	Expires time.Time `json:"expires,omitzero"`
	// ResidualSeconds is the time until then as of the inspection; negative
	// after the expiry.
	ResidualSeconds int64 `json:"residualSeconds,omitempty"`
	// State is one of the constants; Problem has the details.
	State   string `json:"state"`
	Problem string `json:"problem,omitempty"`
	// Renewal is who renews it: fairlead, kubeadm, or you.
	Renewal string `json:"renewal"`
}

// Who renews a certificate. kubeadm renews its own, by kubeadmRenew and a name.
const (
	byFairlead   = "fairlead certs renew"
	kubeadmRenew = "kubeadm certs renew "
	byHand       = "by hand"
)

// Node is a control plane node whose bundle uses certificates.
type Node struct {
	nodefs.Host
	Bundle *v1alpha1.Bundle
	// Now is the clock.
	Now func() time.Time
}

// certFile is a file with certificates that the bundle uses.
type certFile struct {
	path, use, renewal string
	// key is the file with its private key, if fairlead manages that.
	key string
	// kubeconfig means that the certificate is in a kubeconfig.
	kubeconfig bool
	// check is an additional condition.
	check func(*x509.Certificate) error
	// used returns those certificates of the file that are in use; nil for all.
	used func([]*x509.Certificate) []*x509.Certificate
}

// files returns all files with certificates that the bundle uses on a control
// plane node.
func (n Node) files() []certFile {
	k := &n.Bundle.Konnectivity
	ofCA := func(usage x509.ExtKeyUsage) func(*x509.Certificate) error {
		return func(c *x509.Certificate) error { return n.verifyIssuer(c, usage) }
	}
	shown := func(c *x509.Certificate) error {
		return errors.Join(c.VerifyHostname(k.ServerHost), n.verifyIssuer(c, x509.ExtKeyUsageServerAuth))
	}
	files := []certFile{
		{path: n.caFile(), use: "cluster CA", renewal: byHand},
		{path: k.Server.CertFile, key: k.Server.KeyFile, use: "shown to agents", renewal: n.renewalOf(k.Server.CertFile, k.Server.KeyFile), check: shown},
		{path: k.Server.Kubeconfig, key: k.Server.Kubeconfig, use: "server to API server", renewal: byFairlead, kubeconfig: true, check: ofCA(x509.ExtKeyUsageClientAuth)},
	}
	if tcp := k.Transport.TCP; tcp != nil {
		files = append(files,
			n.clientCA(tcp),
			certFile{path: tcp.ClientCert, key: tcp.ClientKey, use: "API server to server", renewal: n.renewalOfClient(tcp), check: n.verifyTCPClient(tcp)})
		if tcp.ServerCert != k.Server.CertFile {
			files = append(files, certFile{path: tcp.ServerCert, key: tcp.ServerKey, use: "shown to API server", renewal: n.renewalOf(tcp.ServerCert, tcp.ServerKey)})
		}
	}
	for i := range files {
		if files[i].renewal != byFairlead {
			files[i].key = ""
		}
	}
	return files
}

// clientCA returns the file with the CA of kube-apiserver's client certificate. A renewal
// leaves the earlier CA in it, whose expiry does no harm.
func (n Node) clientCA(tcp *v1alpha1.TCPTransport) certFile {
	return certFile{path: tcp.ClientCA, use: "CA of API server to server", renewal: n.renewalOf(tcp.ClientCA),
		used: func(cas []*x509.Certificate) []*x509.Certificate { return n.issuersOf(tcp.ClientCert, cas) }}
}

func (n Node) caFile() string { return path.Join(n.Bundle.ControlPlane.PKIDir, "ca.crt") }

func (n Node) apiServerCert() string {
	return path.Join(n.Bundle.ControlPlane.PKIDir, "apiserver.crt")
}

// Inspect lists all certificates that the bundle uses on this node. It does not
// fail: a certificate's problem is in its State.
func (n Node) Inspect(warnBefore time.Duration) []Certificate {
	var out []Certificate
	for _, f := range n.files() {
		for _, c := range n.inspectFile(f, warnBefore) {
			same := func(o Certificate) bool {
				return o.Path == c.Path && o.Expires.Equal(c.Expires) && o.Subject == c.Subject
			}
			if !slices.ContainsFunc(out, same) {
				out = append(out, c)
			}
		}
	}
	return out
}

func (n Node) inspectFile(f certFile, warnBefore time.Duration) []Certificate {
	base := Certificate{Path: f.path, Use: f.use, Renewal: f.renewal, State: Good}
	bad := func(state string, err error) []Certificate {
		base.State, base.Problem = state, err.Error()
		return []Certificate{base}
	}
	data, err := n.Read(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return bad(Missing, errors.New("no such file"))
	}
	if err != nil {
		return bad(Invalid, err)
	}
	if err := n.exposed(f); err != nil {
		return bad(Exposed, err)
	}
	if f.kubeconfig {
		if data, err = clientCerts(data); err != nil {
			return bad(Invalid, err)
		}
		if len(data) == 0 { // a token, a plugin, or the path of a certificate
			base.Renewal = byHand
			return []Certificate{base}
		}
	}
	certs, err := pki.ParseCerts(data)
	if err != nil {
		return bad(Invalid, err)
	}
	if f.used != nil {
		certs = f.used(certs)
	}
	var out []Certificate
	for _, cert := range certs {
		out = append(out, n.inspectCert(base, cert, f.check, warnBefore))
	}
	return out
}

// exposed fails if other users can read a private key.
func (n Node) exposed(f certFile) error {
	if f.key == "" {
		return nil
	}
	if _, mode, err := n.Present(f.key); err == nil && nodefs.IsOpen(mode) {
		return fmt.Errorf("%s has mode %04o, so that others on this node can read the private key: renew it (%s), which closes the file, too", f.key, mode, f.renewal)
	}
	return nil
}

func (n Node) inspectCert(c Certificate, cert *x509.Certificate, check func(*x509.Certificate) error, warnBefore time.Duration) Certificate {
	c.Subject, c.Issuer, c.Expires = NameOf(cert.Subject), NameOf(cert.Issuer), cert.NotAfter
	residual := cert.NotAfter.Sub(n.Now())
	c.ResidualSeconds = int64(residual.Seconds())
	var problem error
	if check != nil {
		problem = check(cert)
	}
	switch {
	case residual <= 0:
		c.State, c.Problem = Expired, fmt.Sprintf("renew it: %s", c.Renewal)
	case problem != nil:
		c.State, c.Problem = Invalid, problem.Error()
	case pki.VerifyTime(cert, n.Now()) != nil:
		c.State, c.Problem = Invalid, pki.VerifyTime(cert, n.Now()).Error()
	case residual < warnBefore:
		c.State, c.Problem = Expiring, fmt.Sprintf("renew it: %s", c.Renewal)
	}
	return c
}
