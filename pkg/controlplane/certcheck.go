// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/nodefs"
)

// WarnBefore is how long before its expiry a certificate is reported.
const WarnBefore = 30 * 24 * time.Hour

// States of a certificate.
const (
	CertGood     = "good"
	CertExpiring = "expires soon"
	CertExpired  = "expired"
	CertInvalid  = "invalid"
	CertMissing  = "missing"
	// CertExposed: users other than root can read the private key.
	CertExposed = "exposed"
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

// Who renews a certificate.
const (
	byFairlead = "fairlead certs renew"
	byKubeadm  = "kubeadm certs renew apiserver"
	byHand     = "by hand"
)

// certFile is a file with certificates that the bundle uses.
type certFile struct {
	path, use, renewal string
	// key is the file with its private key, if fairlead manages that.
	key string
	// kubeconfig means that the certificate is in a kubeconfig.
	kubeconfig bool
	// check is an additional condition.
	check func(*x509.Certificate) error
}

// certFiles returns all files with certificates that the bundle uses on a
// control plane node.
func (n *node) certFiles() []certFile {
	k := &n.bundle.Konnectivity
	ofCA := func(usage x509.ExtKeyUsage) func(*x509.Certificate) error {
		return func(c *x509.Certificate) error { return n.verifyChainAt(c, usage) }
	}
	shown := func(c *x509.Certificate) error {
		return errors.Join(c.VerifyHostname(k.ServerHost), n.verifyChainAt(c, x509.ExtKeyUsageServerAuth))
	}
	files := []certFile{
		{path: path.Join(n.bundle.ControlPlane.PKIDir, "ca.crt"), use: "cluster CA", renewal: byHand},
		{path: k.Server.CertFile, use: "shown to agents", renewal: n.renewalOf(k.Server.CertFile), check: shown},
		{path: k.Server.Kubeconfig, key: k.Server.Kubeconfig, use: "server to API server", renewal: byFairlead, kubeconfig: true, check: ofCA(x509.ExtKeyUsageClientAuth)},
	}
	if files[1].renewal == byFairlead {
		files[1].key = k.Server.KeyFile
	}
	if tcp := k.Transport.TCP; tcp != nil {
		files = append(files,
			certFile{path: tcp.ClientCA, use: "CA of API server to server", renewal: byFairlead},
			certFile{path: tcp.ClientCert, key: tcp.ClientKey, use: "API server to server", renewal: byFairlead, check: n.verifyTCPClient(tcp)})
		if tcp.ServerCert != k.Server.CertFile {
			files = append(files, certFile{path: tcp.ServerCert, key: tcp.ServerKey, use: "shown to API server", renewal: byFairlead})
		}
	}
	return files
}

// renewalOf returns who renews a certificate. kubeadm renews the API server's
// own.
func (n *node) renewalOf(cert string) string {
	if cert == path.Join(n.bundle.ControlPlane.PKIDir, "apiserver.crt") {
		return byKubeadm
	}
	return byFairlead
}

// verifyChainAt ignores the validity period, which is reported separately.
func (n *node) verifyChainAt(cert *x509.Certificate, usage x509.ExtKeyUsage) error {
	ca, err := n.Read(path.Join(n.bundle.ControlPlane.PKIDir, "ca.crt"))
	if err != nil {
		return err
	}
	return verifyIn(ca, cert, usage)
}

func (n *node) verifyTCPClient(tcp *v1alpha1.TCPTransport) func(*x509.Certificate) error {
	return func(c *x509.Certificate) error {
		ca, err := n.Read(tcp.ClientCA)
		if err != nil {
			return err
		}
		return errors.Join(clientName(tcp, c), verifyIn(ca, c, x509.ExtKeyUsageClientAuth))
	}
}

func verifyIn(ca []byte, cert *x509.Certificate, usage x509.ExtKeyUsage) error {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	_, err := cert.Verify(x509.VerifyOptions{Roots: pool, CurrentTime: cert.NotAfter, KeyUsages: []x509.ExtKeyUsage{usage}})
	var invalid x509.CertificateInvalidError
	if errors.As(err, &invalid) && invalid.Reason == x509.Expired {
		return nil // the CA's expiry is reported with the CA
	}
	return err
}

// Certificates lists all certificates that the bundle uses on this node. It does
// not fail: a certificate's problem is in its State.
func Certificates(o Options, warnBefore time.Duration) []Certificate {
	return newNode(o.defaulted()).certificates(warnBefore)
}

func (n *node) certificates(warnBefore time.Duration) []Certificate {
	var out []Certificate
	for _, f := range n.certFiles() {
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

func (n *node) inspectFile(f certFile, warnBefore time.Duration) []Certificate {
	base := Certificate{Path: f.path, Use: f.use, Renewal: f.renewal, State: CertGood}
	bad := func(state string, err error) []Certificate {
		base.State, base.Problem = state, err.Error()
		return []Certificate{base}
	}
	data, err := n.Read(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return bad(CertMissing, errors.New("no such file"))
	}
	if err != nil {
		return bad(CertInvalid, err)
	}
	if err := n.exposed(f); err != nil {
		return bad(CertExposed, err)
	}
	if f.kubeconfig {
		if data, err = kubeconfigCerts(data); err != nil {
			return bad(CertInvalid, err)
		}
	}
	certs, err := parseCerts(data)
	if err != nil {
		return bad(CertInvalid, err)
	}
	var out []Certificate
	for _, cert := range certs {
		out = append(out, n.inspectCert(base, cert, f.check, warnBefore))
	}
	return out
}

// exposed fails if other users can read a private key.
func (n *node) exposed(f certFile) error {
	if f.key == "" {
		return nil
	}
	if _, mode, err := n.Present(f.key); err == nil && nodefs.IsOpen(mode) {
		return fmt.Errorf("%s has mode %04o, so that others on this node can read the private key: renew it (%s), which closes the file, too", f.key, mode, f.renewal)
	}
	return nil
}

func (n *node) inspectCert(c Certificate, cert *x509.Certificate, check func(*x509.Certificate) error, warnBefore time.Duration) Certificate {
	c.Subject, c.Issuer, c.Expires = describeName(cert.Subject), describeName(cert.Issuer), cert.NotAfter
	residual := cert.NotAfter.Sub(n.opts.Now())
	c.ResidualSeconds = int64(residual.Seconds())
	var problem error
	if check != nil {
		problem = check(cert)
	}
	switch {
	case residual <= 0:
		c.State, c.Problem = CertExpired, fmt.Sprintf("renew it: %s", c.Renewal)
	case problem != nil:
		c.State, c.Problem = CertInvalid, problem.Error()
	case pki.VerifyTime(cert, n.opts.Now()) != nil:
		c.State, c.Problem = CertInvalid, pki.VerifyTime(cert, n.opts.Now()).Error()
	case residual < warnBefore:
		c.State, c.Problem = CertExpiring, fmt.Sprintf("renew it: %s", c.Renewal)
	}
	return c
}

// kubeconfigCerts returns the client certificate of a kubeconfig's current
// context.
func kubeconfigCerts(data []byte) ([]byte, error) {
	config, err := clientcmd.Load(data)
	if err != nil {
		return nil, err
	}
	context := config.Contexts[config.CurrentContext]
	if context == nil || config.AuthInfos[context.AuthInfo] == nil {
		return nil, errors.New("it has no current context with a user")
	}
	return config.AuthInfos[context.AuthInfo].ClientCertificateData, nil
}
