// SPDX-License-Identifier: Apache-2.0

package dial

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
	"golang.org/x/crypto/ssh/knownhosts"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/gateway"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunneltest"
)

func newKey(t testing.TB) (ed25519.PrivateKey, ssh.Signer) {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return key, signer
}

// keyFile writes a private key, with a passphrase if that is not empty.
func keyFile(t testing.TB, key ed25519.PrivateKey, passphrase string) string {
	t.Helper()
	block, err := ssh.MarshalPrivateKey(key, "")
	if passphrase != "" {
		block, err = ssh.MarshalPrivateKeyWithPassphrase(key, "", []byte(passphrase))
	}
	if err != nil {
		t.Fatal(err)
	}
	return writeFile(t, "id", pem.EncodeToMemory(block))
}

func writeFile(t testing.TB, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// bastion is an SSH server that permits direct-tcpip channels.
type bastion struct {
	port   uint16
	host   ssh.Signer
	tries  atomic.Int64 // connections
	logins atomic.Int64

	mu     sync.Mutex
	conns  []net.Conn
	silent atomic.Bool // answers no requests
	closes atomic.Bool // closes connections after the login
}

// startBastion serves logins with the user's key. The host shows its key, and what certify makes of it.
func startBastion(t testing.TB, user ssh.PublicKey, certify ...func(ssh.Signer) ssh.Signer) *bastion {
	t.Helper()
	b := &bastion{}
	_, b.host = newKey(t)
	config := &ssh.ServerConfig{PublicKeyCallback: func(_ ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
		if !bytes.Equal(key.Marshal(), user.Marshal()) {
			return nil, errors.New("unknown key")
		}
		return nil, nil
	}}
	config.AddHostKey(b.host)
	for _, f := range certify {
		config.AddHostKey(f(b.host))
	}
	b.port = listen(t, func(c *net.TCPConn) { b.serve(c, config) })
	return b
}

func (b *bastion) serve(c net.Conn, config *ssh.ServerConfig) {
	b.mu.Lock()
	b.conns = append(b.conns, c)
	b.mu.Unlock()
	b.tries.Add(1)
	_, channels, requests, err := ssh.NewServerConn(c, config)
	if err != nil {
		return
	}
	b.logins.Add(1)
	if b.closes.Load() {
		_ = c.Close()
		return
	}
	go func() {
		for r := range requests {
			if !b.silent.Load() && r.WantReply {
				_ = r.Reply(false, nil)
			}
		}
	}()
	for ch := range channels {
		go forwardChannel(ch)
	}
}

// forwardChannel serves a channel as OpenSSH does, with the texts of the C library.
func forwardChannel(ch ssh.NewChannel) {
	var to struct {
		Host       string
		Port       uint32
		Origin     string
		OriginPort uint32
	}
	if err := ssh.Unmarshal(ch.ExtraData(), &to); err != nil || ch.ChannelType() != "direct-tcpip" {
		_ = ch.Reject(ssh.UnknownChannelType, "unknown")
		return
	}
	switch to.Port {
	case 1:
		_ = ch.Reject(ssh.Prohibited, "open failed")
		return
	case 2:
		_ = ch.Reject(ssh.ConnectionFailed, "Name or service not known")
		return
	}
	if strings.TrimSuffix(to.Host, ".") == "inner.example" {
		to.Host = "127.0.0.1"
	}
	target, err := net.Dial("tcp", net.JoinHostPort(to.Host, strconv.Itoa(int(to.Port))))
	if err != nil {
		_ = ch.Reject(ssh.ConnectionFailed, "Connection refused")
		return
	}
	c, requests, err := ch.Accept()
	if err != nil {
		return
	}
	go ssh.DiscardRequests(requests)
	go func() {
		_, _ = io.Copy(target, c)
		_ = target.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.Copy(c, target)
	_ = c.CloseWrite()
}

func (b *bastion) cut() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.conns {
		_ = c.Close()
	}
	b.conns = nil
}

func (b *bastion) via() string { return "ssh=me@127.0.0.1:" + strconv.Itoa(int(b.port)) }

// knows returns a file with the bastion's host key.
func (b *bastion) knows(t testing.TB, key ssh.PublicKey) string {
	t.Helper()
	address := knownhosts.Normalize(net.JoinHostPort("127.0.0.1", strconv.Itoa(int(b.port))))
	return writeFile(t, "known_hosts", []byte(knownhosts.Line([]string{address}, key)+"\n"))
}

// options log in with a file and touch nothing of the user who runs the tests.
func (b *bastion) options(t testing.TB, identity string) Options {
	t.Helper()
	return Options{SSH: SSHOptions{ConfigFile: "none", AgentSocket: "none", IdentityFiles: []string{identity}, KnownHosts: []string{b.knows(t, b.host.PublicKey())}}}
}

// TestSSH: bytes, half-close, names and refusals through a bastion, over one connection.
// It observes SOCKS-04 of docs/requirements.md.
func TestSSH(t *testing.T) {
	t.Parallel()
	key, signer := newKey(t)
	b := startBastion(t, signer.PublicKey())
	d := newDialer(t, b.via(), b.options(t, keyFile(t, key, "")))
	sshTraffic(t, d)
	c := mustDial(t, d, address(gateway.KindExternal, "inner.example", listen(t, echo)))
	ping(t, c, "the bastion resolves names")
	wantReason(t, d, address(gateway.KindExternal, "192.0.2.1", 1), gateway.ReasonDenied, "AllowTcpForwarding")
	wantReason(t, d, address(gateway.KindExternal, "nothing.example", 2), gateway.ReasonNotFound, "resolve")
	if n := b.logins.Load(); n != 1 {
		t.Errorf("%d logins for all connections, want 1", n)
	}
}

func sshTraffic(t *testing.T, d Dialer) {
	t.Helper()
	c := mustDial(t, d, address(gateway.KindNode, "127.0.0.1", listen(t, echo)))
	sent := make([]byte, 4<<20)
	_, _ = rand.Read(sent)
	go func() {
		_, _ = c.Write(sent)
		_ = c.CloseWrite()
	}()
	if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, sent) {
		t.Errorf("sent %d bytes, got %d: %v", len(sent), len(got), err)
	}
	c = mustDial(t, d, address(gateway.KindNode, "127.0.0.1", listen(t, answerAtEnd)))
	_, _ = io.WriteString(c, "question")
	_ = c.CloseWrite()
	if got, err := io.ReadAll(c); err != nil || string(got) != "question" {
		t.Errorf("after the end of the question: %q, %v", got, err)
	}
	c = mustDial(t, d, address(gateway.KindNode, "127.0.0.1", listen(t, silent)))
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read past its deadline: %v", err)
	}
	wantReason(t, d, address(gateway.KindNode, "127.0.0.1", refusing(t)), gateway.ReasonRefused, "refused")
}

// TestSSHHostKeys: an unknown and a changed host key are refused before the user's key is
// shown, with what to run and with both fingerprints.
func TestSSHHostKeys(t *testing.T) {
	t.Parallel()
	key, signer := newKey(t)
	_, other := newKey(t)
	b := startBastion(t, signer.PublicKey())
	to := address(gateway.KindNode, "127.0.0.1", listen(t, echo))
	o := b.options(t, keyFile(t, key, ""))
	o.SSH.KnownHosts = []string{filepath.Join(t.TempDir(), "none")}
	wantReason(t, newDialer(t, b.via(), o), to, gateway.ReasonDenied, "ssh-keyscan -p "+strconv.Itoa(int(b.port))+" 127.0.0.1", ssh.FingerprintSHA256(b.host.PublicKey()))
	o.SSH.KnownHosts = []string{b.knows(t, other.PublicKey())}
	wantReason(t, newDialer(t, b.via(), o), to, gateway.ReasonDenied, "has changed", ssh.FingerprintSHA256(b.host.PublicKey()), ssh.FingerprintSHA256(other.PublicKey()), "ssh-keygen -R")
	if n := b.logins.Load(); n != 0 {
		t.Errorf("%d logins at a host with the wrong key", n)
	}
}

// TestSSHKeys: keys come from files and from an agent; what hinders a login is named.
// It observes SOCKS-02 of docs/requirements.md.
func TestSSHKeys(t *testing.T) {
	t.Parallel()
	key, signer := newKey(t)
	stranger, _ := newKey(t)
	b := startBastion(t, signer.PublicKey())
	to := address(gateway.KindNode, "127.0.0.1", listen(t, echo))
	locked := keyFile(t, key, "secret")
	wantReason(t, newDialer(t, b.via(), b.options(t, locked)), to, gateway.ReasonDenied, "passphrase", "ssh-add "+locked)
	wantReason(t, newDialer(t, b.via(), b.options(t, keyFile(t, stranger, ""))), to, gateway.ReasonDenied, "accepts none of 1 keys")
	open := keyFile(t, key, "")
	if err := os.Chmod(open, 0o644); err != nil {
		t.Fatal(err)
	}
	wantReason(t, newDialer(t, b.via(), b.options(t, open)), to, gateway.ReasonDenied, open+" has mode 0644", "chmod 600")
	wantReason(t, newDialer(t, b.via(), b.options(t, "/nonexistent")), to, gateway.ReasonDenied, "no key", "ssh-add")

	o := b.options(t, locked)
	o.SSH.AgentSocket = startAgent(t, key)
	ping(t, mustDial(t, newDialer(t, b.via(), o), to), "with the agent's key")
}

// TestSSHIdentitiesOnly: with IdentitiesOnly, the agent signs with the keys of identity files, also of those that need a
// passphrase and of which only the public part is there, and with no others.
func TestSSHIdentitiesOnly(t *testing.T) {
	t.Parallel()
	key, signer := newKey(t)
	stranger, other := newKey(t)
	b := startBastion(t, signer.PublicKey())
	to := address(gateway.KindNode, "127.0.0.1", listen(t, echo))
	socket := startAgent(t, stranger, key)
	public := func(key ssh.PublicKey) string {
		return strings.TrimSuffix(writeFile(t, "id.pub", ssh.MarshalAuthorizedKey(key)), ".pub")
	}
	for what, c := range map[string]struct {
		identity string
		denied   string
	}{
		"a file with a passphrase":               {keyFile(t, key, "secret"), ""},
		"a public key":                           {public(signer.PublicKey()), ""},
		"another file":                           {keyFile(t, stranger, ""), "accepts none of"},
		"another public key":                     {public(other.PublicKey()), "accepts none of 1 keys"},
		"no file":                                {"/nonexistent", "no key"},
		"a file of another key, with passphrase": {keyFile(t, stranger, "secret"), "accepts none of 1 keys"},
	} {
		t.Run(what, func(t *testing.T) {
			o := b.options(t, c.identity)
			o.SSH.ConfigFile, o.SSH.IdentityFiles = writeFile(t, "config", []byte("Host *\n  IdentitiesOnly yes\n  IdentityFile "+c.identity+"\n")), nil
			o.SSH.AgentSocket = socket
			d := newDialer(t, b.via(), o)
			if c.denied != "" {
				wantReason(t, d, to, gateway.ReasonDenied, c.denied)
				return
			}
			ping(t, mustDial(t, d, to), "with the agent's key")
		})
	}
	if n := b.logins.Load(); n != 2 {
		t.Errorf("%d logins, want 2", n)
	}
}

// TestSSHUserCertificate: a certificate in the agent logs in, also with IdentitiesOnly, where it belongs to an identity file.
func TestSSHUserCertificate(t *testing.T) {
	t.Parallel()
	key, signer := newKey(t)
	_, authority := newKey(t)
	cert := &ssh.Certificate{Key: signer.PublicKey(), CertType: ssh.UserCert, ValidPrincipals: []string{"me"}, ValidBefore: ssh.CertTimeInfinity}
	if err := cert.SignCert(rand.Reader, authority); err != nil {
		t.Fatal(err)
	}
	b := startBastion(t, cert)
	o := b.options(t, keyFile(t, key, "secret"))
	o.SSH.AgentSocket, o.SSH.IdentitiesOnly = serveAgent(t, agent.AddedKey{PrivateKey: key, Certificate: cert}), true
	ping(t, mustDial(t, newDialer(t, b.via(), o), address(gateway.KindNode, "127.0.0.1", listen(t, echo))), "with a certificate")
}

// startAgent runs an SSH agent with keys and returns its socket.
func startAgent(t *testing.T, keys ...ed25519.PrivateKey) string {
	t.Helper()
	var all []agent.AddedKey
	for _, key := range keys {
		all = append(all, agent.AddedKey{PrivateKey: key})
	}
	return serveAgent(t, all...)
}

func serveAgent(t *testing.T, keys ...agent.AddedKey) string {
	t.Helper()
	ring := agent.NewKeyring()
	for _, key := range keys {
		if err := ring.Add(key); err != nil {
			t.Fatal(err)
		}
	}
	socket := filepath.Join(tunneltest.ShortDir(t), "agent")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			go func() { _ = agent.ServeAgent(ring, c) }()
		}
	}()
	return socket
}

// TestSSHReconnects: when the bastion goes away, open connections fail rather than seem to
// end, and the connection comes back without a dial.
func TestSSHReconnects(t *testing.T) {
	t.Parallel()
	key, signer := newKey(t)
	b := startBastion(t, signer.PublicKey())
	o := b.options(t, keyFile(t, key, ""))
	o.SSH.MinBackoff, o.SSH.MaxBackoff = 20*time.Millisecond, 100*time.Millisecond
	d := newDialer(t, b.via(), o)
	to := address(gateway.KindNode, "127.0.0.1", listen(t, echo))
	for i := range 5 {
		c := mustDial(t, d, to)
		ping(t, c, "before")
		b.cut()
		if _, err := c.Read(make([]byte, 1)); errors.Is(err, io.EOF) || gateway.ReasonOf(err) != gateway.ReasonPathDown {
			t.Fatalf("read after the loss: %v, want reason %s", err, gateway.ReasonPathDown)
		}
		tunneltest.Eventually(t, testTimeout, "connects again in the background", func() bool { return b.logins.Load() == int64(i+2) })
	}
	ping(t, mustDial(t, d, to), "after")
}

// TestSSHBackoff: neither a bastion that closes each connection after the login nor one that refuses the login is asked without
// a wait, however many dials there are. They fail with the reason meanwhile.
func TestSSHBackoff(t *testing.T) {
	t.Parallel()
	key, signer := newKey(t)
	stranger, _ := newKey(t)
	to := address(gateway.KindNode, "127.0.0.1", listen(t, echo))
	const backoff = 300 * time.Millisecond
	for name, c := range map[string]struct {
		key  ed25519.PrivateKey
		want string
		// tries take least, because of the waits between them.
		tries int64
		least time.Duration
	}{
		"closes":  {key, "closed the SSH connection after", 4, 3 * backoff},
		"refuses": {stranger, "accepts none of 1 keys", 3, 3 * backoff}, // each wait is twice as long as the last one
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := startBastion(t, signer.PublicKey())
			b.closes.Store(true)
			o := b.options(t, keyFile(t, c.key, ""))
			o.SSH.MinBackoff = backoff
			d := newDialer(t, b.via(), o)
			said, began := 0, time.Now()
			testutil.Eventually(t, testTimeout, func() error {
				conn, err := d.Dial(t.Context(), to)
				switch {
				case err == nil:
					_ = conn.Close()
				case strings.Contains(err.Error(), c.want):
					said++
				}
				if n := b.tries.Load(); n < c.tries {
					return fmt.Errorf("%d connections, want %d", n, c.tries)
				}
				return nil
			})
			if took := time.Since(began); took < c.least {
				t.Errorf("%d connections within %v, want %v at least", b.tries.Load(), took, c.least)
			}
			if said == 0 {
				t.Errorf("no dial says %q", c.want)
			}
		})
	}
}

// TestSSHKeepAlive: a bastion that stopped answering, without an end of the connection, is
// given up.
func TestSSHKeepAlive(t *testing.T) {
	t.Parallel()
	key, signer := newKey(t)
	b := startBastion(t, signer.PublicKey())
	o := b.options(t, keyFile(t, key, ""))
	o.SSH.KeepAlive = 500 * time.Millisecond
	c := mustDial(t, newDialer(t, b.via(), o), address(gateway.KindNode, "127.0.0.1", listen(t, echo)))
	ping(t, c, "before")
	b.silent.Store(true)
	if _, err := c.Read(make([]byte, 1)); gateway.ReasonOf(err) != gateway.ReasonPathDown {
		t.Errorf("read: %v, want reason %s", err, gateway.ReasonPathDown)
	}
}

// TestSSHPathDown: a bastion that cannot be reached is named, one that says nothing costs no
// more than the dial's time, and Close ends every goroutine.
func TestSSHPathDown(t *testing.T) {
	key, signer := newKey(t)
	b := startBastion(t, signer.PublicKey())
	o := b.options(t, keyFile(t, key, ""))
	to := address(gateway.KindNode, "127.0.0.1", listen(t, silent))
	gone, err := New("ssh=me@127.0.0.1:"+strconv.Itoa(int(refusing(t))), o)
	if err != nil {
		t.Fatal(err)
	}
	wantReason(t, gone, to, gateway.ReasonPathDown, "bastion me@127.0.0.1", "sshd")
	_ = gone.Close()
	mute := o
	mute.Timeout = 200 * time.Millisecond
	stuck, err := New("ssh=me@127.0.0.1:"+strconv.Itoa(int(listen(t, silent))), mute)
	if err != nil {
		t.Fatal(err)
	}
	wantReason(t, stuck, to, gateway.ReasonTimeout)
	_ = stuck.Close()

	d, err := New(b.via(), o)
	if err != nil {
		t.Fatal(err)
	}
	c, err := d.Dial(t.Context(), to)
	if err != nil {
		t.Fatal(err)
	}
	_ = d.Close()
	if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("read after Close: %v", err)
	}
	wantReason(t, d, to, gateway.ReasonPathDown, "closed")
	noLeaks(t)
}

// TestSSHDialContext: client-go reaches an API server that only the bastion can resolve.
func TestSSHDialContext(t *testing.T) {
	t.Parallel()
	key, signer := newKey(t)
	b := startBastion(t, signer.PublicKey())
	api := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"gitVersion": "v1.36.3"}`)
	}))
	defer api.Close()
	d := newDialer(t, b.via(), b.options(t, keyFile(t, key, "")))
	dial, err := SSHDialContext(d)
	if err != nil {
		t.Fatal(err)
	}
	port := netip.MustParseAddrPort(api.Listener.Addr().String()).Port()
	config := &rest.Config{Host: "https://inner.example:" + strconv.Itoa(int(port)), Dial: dial, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if v, err := client.Discovery().ServerVersion(); err != nil || v.GitVersion != "v1.36.3" {
		t.Errorf("version %v, %v", v, err)
	}
	closed := net.JoinHostPort("127.0.0.1", strconv.Itoa(int(refusing(t))))
	if _, err := dial(t.Context(), "tcp", closed); err == nil || !strings.Contains(err.Error(), "cannot connect to "+closed+":") {
		t.Errorf("a server that does not listen: %v, want an error that names %s", err, closed)
	}
	if _, err := SSHDialContext(newDialer(t, ViaDirect, Options{Direct: DirectOptions{Socket: "/x"}})); err == nil {
		t.Error("a dialer of another path is accepted")
	}
}

// TestSSHConfig: the target is completed from the client's configuration, and the target
// wins.
func TestSSHConfig(t *testing.T) {
	t.Parallel()
	file := writeFile(t, "config", []byte("Host jump\n  HostName bastion.example\n  User alice\n  Port 2222\n  IdentityFile /keys/a\n  IdentityFile /keys/b\n  IdentitiesOnly yes\n  UserKnownHostsFile /keys/known\n\nHost hop\n  ProxyJump jump\n"))
	for target, want := range map[string]string{
		"jump": "alice@bastion.example:2222", "bob@jump:22": "bob@bastion.example", "carol@other": "carol@other", "dave@[2001:db8::1]:23": "dave@[2001:db8::1]:23",
		"erin@corp@jump": "erin@corp@bastion.example:2222",
	} {
		got, err := parseSSHTarget(target)
		o := SSHOptions{ConfigFile: file, AgentSocket: "/agent"}
		if err == nil {
			err = got.readConfig(&o)
		}
		if err != nil || got.String() != want {
			t.Errorf("%s: %s, %v, want %s", target, got, err, want)
		}
		if target == "jump" && (len(o.IdentityFiles) != 2 || o.KnownHosts[0] != "/keys/known" || o.AgentSocket != "/agent" || !o.IdentitiesOnly) {
			t.Errorf("options of jump: %+v", o)
		}
	}
	for _, target := range []string{"", "@", "@bastion", "erin@", "erin@corp@", "-o@bastion", "erin@-o", "erin@a b"} {
		if got, err := parseSSHTarget(target); err == nil {
			t.Errorf("%q is accepted as %s", target, got)
		}
	}
	broken := writeFile(t, "broken", []byte("Match exec true\n  User alice\n"))
	if _, err := New("ssh=me@bastion", Options{SSH: SSHOptions{ConfigFile: broken}}); err == nil || !strings.Contains(err.Error(), broken) || !strings.Contains(err.Error(), "--ssh-config") {
		t.Errorf("a configuration that cannot be read: %v", err)
	}
	newDialer(t, "ssh=me@bastion", Options{SSH: SSHOptions{ConfigFile: "none"}})
	if _, err := New("ssh=hop", Options{SSH: SSHOptions{ConfigFile: file}}); err == nil || !strings.Contains(err.Error(), "ProxyJump") {
		t.Errorf("ProxyJump: %v", err)
	}
}
