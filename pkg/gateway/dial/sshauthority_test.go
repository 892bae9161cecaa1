// SPDX-License-Identifier: Apache-2.0

package dial

import (
	"crypto/rand"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
)

// hostCertificate returns what makes a host certificate of an authority for a name.
func hostCertificate(t *testing.T, authority ssh.Signer, principal string) func(ssh.Signer) ssh.Signer {
	return func(host ssh.Signer) ssh.Signer {
		t.Helper()
		cert := &ssh.Certificate{Key: host.PublicKey(), CertType: ssh.HostCert, ValidPrincipals: []string{principal}, ValidBefore: uint64(time.Now().Add(time.Hour).Unix())}
		if err := cert.SignCert(rand.Reader, authority); err != nil {
			t.Fatal(err)
		}
		signer, err := ssh.NewCertSigner(cert, host)
		if err != nil {
			t.Fatal(err)
		}
		return signer
	}
}

// TestSSHCertAuthority: where known_hosts names an authority, as "@cert-authority", a bastion with a certificate of it is
// known, whatever else the file has for that host. One without is refused, and not as one whose key has changed.
func TestSSHCertAuthority(t *testing.T) {
	t.Parallel()
	key, signer := newKey(t)
	_, authority := newKey(t)
	_, other := newKey(t)
	identity := keyFile(t, key, "")
	plain := startBastion(t, signer.PublicKey())
	certified := startBastion(t, signer.PublicKey(), hostCertificate(t, authority, "127.0.0.1"))
	misnamed := startBastion(t, signer.PublicKey(), hostCertificate(t, authority, "other.example"))
	to := address(gateway.KindNode, "127.0.0.1", listen(t, echo))
	line := func(b *bastion, marker string, key ssh.PublicKey) string {
		host := knownhosts.Normalize(net.JoinHostPort("127.0.0.1", strconv.Itoa(int(b.port))))
		return strings.TrimSpace(marker+" "+knownhosts.Line([]string{host}, key)) + "\n"
	}
	for what, c := range map[string]struct {
		b      *bastion
		known  func(b *bastion) string
		denied []string // empty: connects
	}{
		"authority": {certified, func(b *bastion) string { return line(b, "@cert-authority", authority.PublicKey()) }, nil},
		"authority after another host's keys": {certified, func(b *bastion) string {
			return "# a comment\n\n" + line(plain, "", plain.host.PublicKey()) + line(b, "@cert-authority", authority.PublicKey())
		}, nil},
		"authority and the key": {certified, func(b *bastion) string {
			return line(b, "", b.host.PublicKey()) + line(b, "@cert-authority", authority.PublicKey())
		}, nil},
		"authority and a changed key": {certified, func(b *bastion) string {
			return line(b, "", other.PublicKey()) + line(b, "@cert-authority", authority.PublicKey())
		}, nil},
		"the key and another authority": {certified, func(b *bastion) string {
			return line(b, "", b.host.PublicKey()) + line(b, "@cert-authority", other.PublicKey())
		}, nil},
		"the key": {certified, func(b *bastion) string { return line(b, "", b.host.PublicKey()) }, nil},
		"authority, and no certificate": {plain, func(b *bastion) string { return line(b, "@cert-authority", authority.PublicKey()) },
			[]string{"no certificate", ssh.FingerprintSHA256(plain.host.PublicKey()), ssh.FingerprintSHA256(authority.PublicKey()), "HostCertificate"}},
		"authority and the key, and no certificate": {plain, func(b *bastion) string {
			return line(b, "", b.host.PublicKey()) + line(b, "@cert-authority", authority.PublicKey())
		}, nil},
		"a revoked authority": {certified, func(b *bastion) string {
			return line(b, "@cert-authority", authority.PublicKey()) + line(b, "@revoked", authority.PublicKey())
		}, []string{"revoked", "ask who runs the bastion"}},
		"a revoked authority of all hosts": {certified, func(b *bastion) string {
			return line(b, "@cert-authority", authority.PublicKey()) + "@revoked * " + string(ssh.MarshalAuthorizedKey(authority.PublicKey()))
		}, []string{"revoked", "ask who runs the bastion"}},
		"a revoked authority and the key": {certified, func(b *bastion) string {
			return line(b, "", b.host.PublicKey()) + line(b, "@cert-authority", authority.PublicKey()) + line(b, "@revoked", authority.PublicKey())
		}, []string{"revoked", "ask who runs the bastion"}},
		"a revoked key": {certified, func(b *bastion) string {
			return line(b, "@cert-authority", authority.PublicKey()) + line(b, "@revoked", b.host.PublicKey())
		}, []string{"revoked", "ask who runs the bastion"}},
		"another authority":              {certified, func(b *bastion) string { return line(b, "@cert-authority", other.PublicKey()) }, []string{"no authorities for hostname", "ask who runs the bastion"}},
		"a certificate for another host": {misnamed, func(b *bastion) string { return line(b, "@cert-authority", authority.PublicKey()) }, []string{"127.0.0.1", "ask who runs the bastion"}},
		"nothing":                        {certified, func(*bastion) string { return "" }, []string{"is unknown", "ssh-keyscan", ssh.FingerprintSHA256(certified.host.PublicKey())}},
		"a changed key":                  {certified, func(b *bastion) string { return line(b, "", other.PublicKey()) }, []string{"has changed", "ssh-keygen -R"}},
	} {
		t.Run(what, func(t *testing.T) {
			o := c.b.options(t, identity)
			o.SSH.KnownHosts = []string{writeFile(t, "known_hosts", fmt.Append(nil, c.known(c.b)))}
			d := newDialer(t, c.b.via(), o)
			if len(c.denied) == 0 {
				ping(t, mustDial(t, d, to), "known")
				return
			}
			wantReason(t, d, to, gateway.ReasonDenied, c.denied...)
		})
	}
}
