// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"

	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
)

// errNoCAKey is returned when the node has the cluster CA's certificate but not
// its key, so the node can verify certificates and cannot issue them.
var errNoCAKey = errors.New("the cluster CA's key is not on this node")

// Authority is the cluster's CA. KeyPair holds the certificate that belongs to
// the key, and Trust holds every CA that the cluster trusts: two while the CA is
// being rotated.
type Authority struct {
	pki.KeyPair
	Trust []byte
}

// Authority reads the cluster's CA from the given files of this machine, or from
// the node's PKI directory.
func (n Node) Authority(certFile, keyFile string) (Authority, error) {
	cert, certName, err := n.ReadGiven(certFile, n.caFile())
	if err != nil {
		return Authority{}, err
	}
	certs, err := pki.ParseCerts(cert)
	if err != nil {
		return Authority{}, fmt.Errorf("%s: %w", certName, err)
	}
	ca := Authority{KeyPair: pki.KeyPair{Cert: certs[0]}, Trust: encode(certs)}
	key, keyName, err := n.ReadGiven(keyFile, path.Join(n.Bundle.ControlPlane.PKIDir, "ca.key"))
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
		if problem = pki.VerifyCA(ca.KeyPair, n.Now()); problem == nil {
			return ca, nil
		}
	}
	return ca, fmt.Errorf("%s, %s: %w", certName, keyName, problem)
}

func encode(certs []*x509.Certificate) []byte {
	var out []byte
	for _, c := range certs {
		out = append(out, pki.EncodeCert(c)...)
	}
	return out
}

// CAKeys returns the fingerprints of the public keys in ca.crt, sorted; nil if the
// file cannot be read.
func (n Node) CAKeys() []string {
	data, err := n.Read(n.caFile())
	if err != nil {
		return nil
	}
	return Keys(data)
}

// Keys returns the fingerprints of the certificates' public keys, sorted; nil if
// the certificates cannot be read.
func Keys(data []byte) []string {
	certs, err := pki.ParseCerts(data)
	if err != nil {
		return nil
	}
	var keys []string
	for _, c := range certs {
		sum := sha256.Sum256(c.RawSubjectPublicKeyInfo)
		keys = append(keys, hex.EncodeToString(sum[:]))
	}
	slices.Sort(keys)
	return keys
}
