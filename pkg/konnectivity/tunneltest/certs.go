// SPDX-License-Identifier: Apache-2.0

// Package tunneltest runs tunnels inside a test process and holds the suite that
// every pair of server and agent has to pass.
package tunneltest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// CA signs certificates for tests.
type CA struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	// File is the CA's certificate in PEM.
	File string
	Dir  string
	n    int64 // guarded by mu, as several rigs share a CA
	mu   *sync.Mutex
}

// NewCA makes a CA whose files live in dir.
func NewCA(t testing.TB, dir string) *CA {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA " + filepath.Base(dir)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	ca := &CA{key: key, Dir: dir, File: filepath.Join(dir, "ca.crt"), n: 1, mu: &sync.Mutex{}}
	ca.cert, _ = x509.ParseCertificate(der)
	writePEM(t, ca.File, "CERTIFICATE", der)
	return ca
}

// Intermediate makes a CA that this one has issued. Its files live in a directory of its own.
func (ca *CA) Intermediate(t testing.TB, name string) *CA {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ca.n++
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(ca.n), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, ca.cert, &key.PublicKey, ca.key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	sub := &CA{key: key, Dir: dir, File: filepath.Join(dir, "ca.crt"), mu: &sync.Mutex{}}
	sub.cert, _ = x509.ParseCertificate(der)
	writePEM(t, sub.File, "CERTIFICATE", der)
	return sub
}

// Issue writes name.crt and name.key, valid until the given time, for both
// usages.
func (ca *CA) Issue(t testing.TB, name string, until time.Time) (crt, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ca.mu.Lock()
	ca.n++
	serial := ca.n
	ca.mu.Unlock()
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: until, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, ca.cert, &k.PublicKey, ca.key)
	if err != nil {
		t.Fatal(err)
	}
	kder, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	crt, key = filepath.Join(ca.Dir, name+".crt"), filepath.Join(ca.Dir, name+".key")
	writePEM(t, crt, "CERTIFICATE", der)
	writePEM(t, key, "EC PRIVATE KEY", kder)
	return crt, key
}

func writePEM(t testing.TB, path, kind string, der []byte) {
	t.Helper()
	tmp := path + ".new"
	if err := os.WriteFile(tmp, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(tmp, path); err != nil {
		t.Fatal(err)
	}
}

// loadPair issues a certificate and loads it.
func loadPair(t testing.TB, ca *CA, name string, until time.Time) []tls.Certificate {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(ca.Issue(t, name, until))
	if err != nil {
		t.Fatal(err)
	}
	return []tls.Certificate{pair}
}
