// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
)

// ErrPEM is returned for input that does not hold what it should.
var ErrPEM = errors.New("not valid PEM")

const (
	blockCertificate = "CERTIFICATE"
	blockPrivateKey  = "PRIVATE KEY"
	blockPublicKey   = "PUBLIC KEY"
)

// CertPEM is the certificate in PEM.
func (p KeyPair) CertPEM() []byte { return EncodeCert(p.Cert) }

// KeyPEM is the private key in PEM, unencrypted PKCS#8. Write it with mode 0600.
func (p KeyPair) KeyPEM() ([]byte, error) { return EncodeKey(p.Key) }

// EncodeCert encodes a certificate.
func EncodeCert(cert *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: blockCertificate, Bytes: cert.Raw})
}

// EncodeKey encodes a private key as unencrypted PKCS#8.
func EncodeKey(key crypto.Signer) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode private key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: blockPrivateKey, Bytes: der}), nil
}

// EncodePublicKey encodes the public half of a key, as --service-account-key-file
// wants it.
func EncodePublicKey(key crypto.Signer) ([]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, fmt.Errorf("encode public key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: blockPublicKey, Bytes: der}), nil
}

// ParseCert reads the first certificate of certPEM.
func ParseCert(certPEM []byte) (*x509.Certificate, error) {
	for {
		var block *pem.Block
		block, certPEM = pem.Decode(certPEM)
		if block == nil {
			return nil, fmt.Errorf("%w: it holds no certificate", ErrPEM)
		}
		if block.Type != blockCertificate {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("read certificate: %w", err)
		}
		return cert, nil
	}
}

// ParseCerts reads all certificates of a PEM file, and fails if it has none.
func ParseCerts(data []byte) ([]*x509.Certificate, error) {
	var certs []*x509.Certificate
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		certs = append(certs, cert)
	}
	if len(certs) == 0 {
		return nil, fmt.Errorf("%w: it holds no certificate", ErrPEM)
	}
	return certs, nil
}

// ParseKey reads the first private key of keyPEM: PKCS#8, PKCS#1 or SEC 1, not
// encrypted.
func ParseKey(keyPEM []byte) (crypto.Signer, error) {
	for {
		var block *pem.Block
		block, keyPEM = pem.Decode(keyPEM)
		if block == nil {
			return nil, fmt.Errorf("%w: it holds no private key (an encrypted one must be decrypted first)", ErrPEM)
		}
		key, err := parseKeyBlock(block)
		if err != nil {
			return nil, fmt.Errorf("read private key: %w", err)
		}
		if key == nil {
			continue
		}
		signer, ok := key.(crypto.Signer)
		if !ok {
			return nil, fmt.Errorf("read private key: a %T cannot sign", key)
		}
		return signer, nil
	}
}

// parseKeyBlock returns nil for a block of another type: ECDSA keys written by
// other tools have their parameters in front.
func parseKeyBlock(block *pem.Block) (any, error) {
	switch block.Type {
	case blockPrivateKey:
		return x509.ParsePKCS8PrivateKey(block.Bytes)
	case "RSA PRIVATE KEY":
		return x509.ParsePKCS1PrivateKey(block.Bytes)
	case "EC PRIVATE KEY":
		return x509.ParseECPrivateKey(block.Bytes)
	}
	return nil, nil
}

// ParseKeyPair reads a certificate and its key, and fails with
// [ErrKeyMismatch] if they do not belong together.
func ParseKeyPair(certPEM, keyPEM []byte) (KeyPair, error) {
	cert, err := ParseCert(certPEM)
	if err != nil {
		return KeyPair{}, err
	}
	key, err := ParseKey(keyPEM)
	if err != nil {
		return KeyPair{}, err
	}
	pair := KeyPair{Cert: cert, Key: key}
	if err := VerifyKey(pair); err != nil {
		return KeyPair{}, err
	}
	return pair, nil
}
