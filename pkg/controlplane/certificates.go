// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"net/netip"
	"os"
	"path"
	"slices"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
)

// errNoCAKey is returned when the node has the cluster CA's certificate but not
// its key, so the node can verify certificates and cannot issue them.
var errNoCAKey = errors.New("the cluster CA's key is not on this node")

// authority is the cluster's CA. KeyPair holds the certificate that belongs to
// the key, and trust holds every CA that the cluster trusts: two while the CA is
// being rotated.
type authority struct {
	pki.KeyPair
	trust []byte
}

// clusterCA reads the cluster's CA from the files named in the options, or from
// the node's PKI directory.
func (n *node) clusterCA() (authority, error) {
	cert, certName, err := n.optionFile(n.opts.CACert, path.Join(n.bundle.ControlPlane.PKIDir, "ca.crt"))
	if err != nil {
		return authority{}, err
	}
	certs, err := parseCerts(cert)
	if err != nil {
		return authority{}, fmt.Errorf("%s: %w", certName, err)
	}
	ca := authority{KeyPair: pki.KeyPair{Cert: certs[0]}, trust: encodeCerts(certs)}
	key, keyName, err := n.optionFile(n.opts.CAKey, path.Join(n.bundle.ControlPlane.PKIDir, "ca.key"))
	if errors.Is(err, fs.ErrNotExist) {
		return ca, fmt.Errorf("%w (%s): give it with --ca-cert and --ca-key, or have the kubeconfig made where it is "+
			"(\"fairlead render -o dir\") and give that with --server-kubeconfig", errNoCAKey, keyName)
	}
	if err != nil {
		return ca, err
	}
	if ca.Key, err = pki.ParseKey(key); err != nil {
		return ca, fmt.Errorf("%s: %w", keyName, err)
	}
	var problem error
	for _, c := range certs {
		ca.Cert = c
		if problem = pki.VerifyCA(ca.KeyPair, n.opts.Now()); problem == nil {
			return ca, nil
		}
	}
	return ca, fmt.Errorf("%s, %s: %w", certName, keyName, problem)
}

// optionFile reads the given file, or the node's usual file if none is given.
func (n *node) optionFile(given, usual string) (data []byte, name string, err error) {
	if given == "" {
		data, err = n.Read(usual)
		return data, usual, err
	}
	data, err = os.ReadFile(given)
	return data, given, err
}

func parseCerts(data []byte) ([]*x509.Certificate, error) { return pki.ParseCerts(data) }

func encodeCerts(certs []*x509.Certificate) []byte {
	var out []byte
	for _, c := range certs {
		out = append(out, pki.EncodeCert(c)...)
	}
	return out
}

// withName reissues a certificate with one more name. Key, subject, usages and
// expiry stay the same, so clients that trusted the old certificate also trust
// the new one.
func withName(old *x509.Certificate, ca pki.KeyPair, name string) ([]byte, error) {
	template := &x509.Certificate{
		Subject: old.Subject, NotBefore: old.NotBefore, NotAfter: old.NotAfter,
		KeyUsage: old.KeyUsage, ExtKeyUsage: old.ExtKeyUsage, UnknownExtKeyUsage: old.UnknownExtKeyUsage,
		BasicConstraintsValid: old.BasicConstraintsValid, IsCA: old.IsCA,
		DNSNames: slices.Clone(old.DNSNames), IPAddresses: slices.Clone(old.IPAddresses),
		EmailAddresses: old.EmailAddresses, URIs: old.URIs,
	}
	if ip, err := netip.ParseAddr(name); err == nil {
		template.IPAddresses = append(template.IPAddresses, net.IP(ip.AsSlice()))
	} else {
		template.DNSNames = append(template.DNSNames, name)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial
	if template.NotAfter.After(ca.Cert.NotAfter) {
		template.NotAfter = ca.Cert.NotAfter
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.Cert, old.PublicKey, ca.Key)
	if err != nil {
		return nil, fmt.Errorf("issue the certificate of %s again: %w", describeName(old.Subject), err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

func describeName(n pkix.Name) string {
	if n.CommonName != "" {
		return n.CommonName
	}
	return n.String()
}

// kubeconfigIdentity returns the client certificate of the kubeconfig's current
// context, or nil if the context authenticates in another way, and the URL of
// the API server.
func kubeconfigIdentity(data []byte) (cert *x509.Certificate, server string, err error) {
	config, err := clientcmd.Load(data)
	if err != nil {
		return nil, "", err
	}
	if err := clientcmd.ConfirmUsable(*config, ""); err != nil {
		return nil, "", err
	}
	context := config.Contexts[config.CurrentContext]
	if context == nil {
		return nil, "", errors.New("it has no current context")
	}
	server = config.Clusters[context.Cluster].Server
	if user := config.AuthInfos[context.AuthInfo]; len(user.ClientCertificateData) > 0 {
		cert, err = pki.ParseCert(user.ClientCertificateData)
	}
	return cert, server, err
}

// kubeconfigTrust returns the CAs embedded in a kubeconfig, or nil if it embeds
// none.
func kubeconfigTrust(data []byte) []byte {
	config, err := clientcmd.Load(data)
	if err != nil || clientcmd.ConfirmUsable(*config, "") != nil {
		return nil
	}
	context := config.Contexts[config.CurrentContext]
	if context == nil {
		return nil
	}
	return config.Clusters[context.Cluster].CertificateAuthorityData
}

// checkServerKubeconfig fails if the Konnectivity server cannot use a
// kubeconfig: it belongs to another user or another cluster, or its certificate
// has expired.
func (n *node) checkServerKubeconfig(data []byte) error {
	cert, _, err := kubeconfigIdentity(data)
	if err != nil {
		return err
	}
	if cert == nil {
		return nil // a token or a plugin; only the API server can verify it
	}
	if cn := cert.Subject.CommonName; cn != konnectivity.ServerUser {
		return fmt.Errorf("it is of user %s, not of %s", cn, konnectivity.ServerUser)
	}
	if err := pki.VerifyTime(cert, n.opts.Now()); err != nil {
		return err
	}
	return n.verifyChain(cert, x509.ExtKeyUsageClientAuth)
}

// verifyChain fails if the cluster's CA did not issue the certificate.
func (n *node) verifyChain(cert *x509.Certificate, usage x509.ExtKeyUsage) error {
	ca, err := n.Read(path.Join(n.bundle.ControlPlane.PKIDir, "ca.crt"))
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	_, err = cert.Verify(x509.VerifyOptions{Roots: pool, CurrentTime: n.opts.Now(), KeyUsages: []x509.ExtKeyUsage{usage}})
	return err
}
