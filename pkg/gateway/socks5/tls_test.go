// SPDX-License-Identifier: Apache-2.0

package socks5

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/proxy"

	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
	"github.com/fairlead-dev/fairlead/pkg/gateway/auth"
)

// testCA issues certificates into files of a directory.
type testCA struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newCA(t *testing.T) *testCA {
	t.Helper()
	ca := &testCA{dir: t.TempDir()}
	ca.cert, ca.key = ca.issue(t, "ca", &x509.Certificate{
		Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	return ca
}

func (ca *testCA) file(name string) string { return filepath.Join(ca.dir, name) }

func (ca *testCA) issue(t *testing.T, name string, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	parent, signer := ca.cert, ca.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for path, block := range map[string]*pem.Block{name + ".key": {Type: "PRIVATE KEY", Bytes: keyDER}, name + ".crt": {Type: "CERTIFICATE", Bytes: der}} {
		if err := os.WriteFile(ca.file(path), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

func (ca *testCA) server(t *testing.T) *x509.Certificate {
	t.Helper()
	cert, _ := ca.issue(t, "server", &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
	return cert
}

func (ca *testCA) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(ca.cert)
	return p
}

func (ca *testCA) client(t *testing.T, name string, groups ...string) tls.Certificate {
	t.Helper()
	ca.issue(t, name, &x509.Certificate{Subject: pkix.Name{CommonName: name, Organization: groups}})
	pair, err := tls.LoadX509KeyPair(ca.file(name+".crt"), ca.file(name+".key"))
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// withTLS serves TLS with client certificates of the CA, and with the password.
func withTLS(t *testing.T, ca *testCA) func(*world, *Config) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	cfg, err := auth.NewTLS(ctx, auth.TLSFiles{Cert: ca.file("server.crt"), Key: ca.file("server.key"), ClientCA: ca.file("ca.crt")})
	if err != nil {
		t.Fatal(err)
	}
	return func(_ *world, c *Config) {
		c.TLS = cfg
		c.Authenticator.Certificates = true
	}
}

// TestCurlWithClientCertificate: curl reaches a Service through an https proxy with a
// certificate, and the audit log records the names of the certificate as the user and the
// groups. The proxy rejects a client with a certificate of another CA and a client without
// a certificate.
func TestCurlWithClientCertificate(t *testing.T) {
	t.Parallel()
	ca, other := newCA(t), newCA(t)
	ca.server(t)
	ca.client(t, "carol", "ops")
	other.client(t, "mallory", "ops")
	w := newWorld(t, withTLS(t, ca))
	web(t, w)
	args := []string{"--proxytunnel", "--proxy", "https://" + w.addr, "--proxy-cacert", ca.file("ca.crt"), "http://web.default:81/"}
	with := func(extra ...string) []string { return append(slices.Clone(args), extra...) }
	if out, err := curl(t, with("--proxy-cert", ca.file("carol.crt"), "--proxy-key", ca.file("carol.key"))...); err != nil || !strings.HasPrefix(out, "hello") {
		t.Errorf("%q, %v", out, err)
	}
	if r := w.ended(t, 1)[0]; r.User != "carol" || !slices.Contains(r.Groups, "ops") || r.Result != ResultOK {
		t.Errorf("%+v", r)
	}
	if out, err := curl(t, with("--proxy-user", testUser+":"+testPassword)...); err != nil || !strings.HasPrefix(out, "hello") {
		t.Errorf("by password: %q, %v", out, err)
	}
	if out, err := curl(t, args...); err == nil || !strings.Contains(err.Error(), "407") {
		t.Errorf("without credentials: %q, %v", out, err)
	}
	if out, err := curl(t, with("--proxy-cert", other.file("mallory.crt"), "--proxy-key", other.file("mallory.key"))...); err == nil {
		t.Errorf("with a certificate of another CA: %q", out)
	}
}

// TestSOCKS5InTLS: SOCKS5 works inside of TLS and takes the user from the certificate; each
// direction still ends by itself.
func TestSOCKS5InTLS(t *testing.T) {
	t.Parallel()
	ca := newCA(t)
	ca.server(t)
	pair := ca.client(t, "carol", "ops")
	w := newWorld(t, withTLS(t, ca))
	w.name("count.default", serveTCP(t, countAtEnd))
	d := socks5InTLS(t, w, ca, pair)
	for range 2 { // the second one would resume a session
		nc, err := d.Dial("tcp", "count.default:7")
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(nc, "12345")
		if err := nc.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(nc); string(got) != "got 5" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		_ = nc.Close()
	}
	for _, r := range w.ended(t, 2) {
		if r.User != "carol" || r.Protocol != "socks5" || r.Result != ResultOK {
			t.Errorf("%+v", r)
		}
	}
}

// TestClientLeavesTLS: a client that has closed its connection, as kubectl does when it exits, has ended it in an orderly way, also if the
// destination's last bytes and the end do not reach it.
func TestClientLeavesTLS(t *testing.T) {
	t.Parallel()
	ca := newCA(t)
	ca.server(t)
	pair := ca.client(t, "carol", "ops")
	w := newWorld(t, withTLS(t, ca))
	w.name("bye.default", serveTCP(t, func(nc *net.TCPConn) {
		_, _ = io.Copy(io.Discard, nc)
		_, _ = io.WriteString(nc, "bye")
		time.Sleep(100 * time.Millisecond) // the client's machine answers with a reset
	}))
	d := socks5InTLS(t, w, ca, pair)
	nc, err := d.Dial("tcp", "bye.default:7")
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(nc, "12345")
	_ = nc.Close()
	if r := w.ended(t, 1)[0]; r.Result != ResultOK {
		t.Errorf("%+v", r)
	}
}

// socks5InTLS is a client of the proxy that shows a certificate.
func socks5InTLS(t *testing.T, w *world, ca *testCA, pair tls.Certificate) proxy.Dialer {
	t.Helper()
	d, err := proxy.SOCKS5("tcp", w.addr, nil, dialerFunc(func(network, addr string) (net.Conn, error) {
		return tls.Dial(network, addr, &tls.Config{RootCAs: ca.pool(), Certificates: []tls.Certificate{pair}})
	}))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

type dialerFunc func(network, addr string) (net.Conn, error)

func (f dialerFunc) Dial(network, addr string) (net.Conn, error) { return f(network, addr) }

// TestClientWithoutTLS: a client that connects without TLS gets an error in the protocol
// that it speaks, SOCKS5 or HTTP.
func TestClientWithoutTLS(t *testing.T) {
	t.Parallel()
	ca := newCA(t)
	ca.server(t)
	w := newWorld(t, withTLS(t, ca))
	if got := talk(t, w.addr, greetAndLogin()); got != "\x05\xff" {
		t.Errorf("%q", got)
	}
	if got := talk(t, w.addr, "CONNECT x:1 HTTP/1.1\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.0 400 ") || !strings.Contains(got, "TLS") {
		t.Errorf("%q", got)
	}
}

// TestRenewedCertificate: a serving certificate that is replaced on disk is used without a
// restart.
func TestRenewedCertificate(t *testing.T) {
	t.Parallel()
	ca := newCA(t)
	ca.server(t)
	w := newWorld(t, withTLS(t, ca))
	renewed := ca.server(t)
	daemontest.Eventually(t, time.Minute, func() error {
		nc, err := tls.Dial("tcp", w.addr, &tls.Config{RootCAs: ca.pool()})
		if err != nil {
			return err
		}
		defer func() { _ = nc.Close() }()
		if serial := nc.ConnectionState().PeerCertificates[0].SerialNumber; serial.Cmp(renewed.SerialNumber) != 0 {
			return fmt.Errorf("certificate %v is served, not %v", serial, renewed.SerialNumber)
		}
		return nil
	})
}

// TestReplacedClientCA: when the file of the client CA is replaced, clients of the new CA are let in
// without a restart, and those of the old one no longer; connections that are open stay open.
func TestReplacedClientCA(t *testing.T) {
	t.Parallel()
	old, renewed := newCA(t), newCA(t)
	old.server(t)
	oldPair, newPair := old.client(t, "carol"), renewed.client(t, "dave")
	w := newWorld(t, withTLS(t, old))
	w.name("echo.default", serveTCP(t, echo))
	connect := func(pair tls.Certificate) (*tls.Conn, string) {
		nc, err := tls.Dial("tcp", w.addr, &tls.Config{RootCAs: old.pool(), Certificates: []tls.Certificate{pair}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = nc.Close() })
		_ = nc.SetDeadline(time.Now().Add(2 * time.Minute))
		_, _ = io.WriteString(nc, "CONNECT echo.default:7 HTTP/1.1\r\n\r\n")
		line := make([]byte, len("HTTP/1.1 200"))
		_, _ = io.ReadFull(nc, line) // the server refuses certificates after the handshake
		return nc, string(line)
	}
	open, status := connect(oldPair)
	if status != "HTTP/1.1 200" {
		t.Fatalf("with a certificate of the CA: %q", status)
	}
	if nc, status := connect(newPair); status == "HTTP/1.1 200" {
		t.Fatalf("a client of another CA is let in by %s", nc.RemoteAddr())
	}
	data, err := os.ReadFile(renewed.file("ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	next := old.file("next.crt")
	if err := os.WriteFile(next, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, old.file("ca.crt")); err != nil {
		t.Fatal(err)
	}
	daemontest.Eventually(t, time.Minute, func() error {
		if _, status := connect(newPair); status != "HTTP/1.1 200" {
			return fmt.Errorf("a client of the new CA is refused: %q", status)
		}
		return nil
	})
	if _, status := connect(oldPair); status == "HTTP/1.1 200" {
		t.Error("a client of the old CA is let in")
	}
	if _, err := io.WriteString(open, "ping"); err != nil {
		t.Error(err)
	}
	const rest = " Connection established\r\n\r\nping"
	if got := readFull(t, open, make([]byte, len(rest))); got != rest {
		t.Errorf("the open connection: %q", got)
	}
}
