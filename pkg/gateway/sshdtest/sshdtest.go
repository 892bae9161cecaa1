// SPDX-License-Identifier: Apache-2.0

// Package sshdtest runs OpenSSH's server for tests: a bastion on loopback with keys of its
// own, and a home directory whose user may log in. Start with [New].
package sshdtest

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
)

// asRoot gives sshd the users that it wants, root being one that can log in, in a mount
// namespace of its own.
const asRoot = `set -e
echo 'root:*:0:0:root:/:/bin/sh
sshd:*:65533:65534::/run/sshd:/bin/false' > "$1/passwd"
echo 'root:*:1::::::' > "$1/shadow"
mount --bind "$1/passwd" /etc/passwd
mount --bind "$1/shadow" /etc/shadow
mount -t tmpfs none /run
mkdir -m 755 /run/sshd
shift
exec "$@"`

// Bastion is an sshd.
type Bastion struct {
	// Home is a home directory with the key of a user who may log in, and with the
	// bastion's host key.
	Home string
	// Target is USER@HOST:PORT.
	Target string

	t    testing.TB
	dir  string
	addr string
	cmd  *exec.Cmd
}

// New starts an sshd that ends with the test, with further lines of sshd_config. Where there
// is none, [daemontest.Program] tells what becomes of the test.
func New(t testing.TB, lines ...string) *Bastion {
	t.Helper()
	daemontest.Program(t, "sshd")
	if os.Getuid() == 0 {
		if err := exec.CommandContext(t.Context(), "unshare", "--mount", "true").Run(); err != nil {
			t.Skipf("SKIPPED: sshd of root needs a mount namespace: %v", err)
		}
	}
	u, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "sshd") //nolint:usetesting // sshd refuses the modes of the test's directories
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	b := &Bastion{t: t, dir: dir, Home: filepath.Join(dir, "home"), addr: net.JoinHostPort("127.0.0.1", daemontest.Ports(t, 1)[0])}
	b.Target = u.Username + "@" + b.addr
	if err := os.MkdirAll(filepath.Join(b.Home, ".ssh"), 0o700); err != nil {
		t.Fatal(err)
	}
	identity, login := newKey(t)
	b.write("home/.ssh/id_ed25519", identity)
	b.write("authorized_keys", ssh.MarshalAuthorizedKey(login))
	b.write("config", fmt.Appendf(nil, "ListenAddress %s\nHostKey %s/host\nAuthorizedKeysFile %s/authorized_keys\nStrictModes no\nUsePAM no\nPidFile none\nUseDNS no\nPermitRootLogin yes\n%s\n", b.addr, dir, dir, strings.Join(lines, "\n")))
	b.ChangeHostKey()
	b.Trust()
	b.Start()
	t.Cleanup(b.Stop)
	return b
}

func newKey(t testing.TB) (private []byte, public ssh.PublicKey) {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(key, "")
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(block), signer.PublicKey()
}

func (b *Bastion) write(name string, data []byte) {
	b.t.Helper()
	if err := os.WriteFile(filepath.Join(b.dir, name), data, 0o600); err != nil {
		b.t.Fatal(err)
	}
}

// ChangeHostKey gives the bastion another host key, for its next start.
func (b *Bastion) ChangeHostKey() {
	b.t.Helper()
	private, public := newKey(b.t)
	b.write("host", private)
	b.write("host.pub", ssh.MarshalAuthorizedKey(public))
}

// Trust makes the host key that the bastion has now the known one.
func (b *Bastion) Trust() {
	b.t.Helper()
	data, err := os.ReadFile(filepath.Join(b.dir, "host.pub"))
	if err != nil {
		b.t.Fatal(err)
	}
	key, _, _, _, err := ssh.ParseAuthorizedKey(data)
	if err != nil {
		b.t.Fatal(err)
	}
	b.write("home/.ssh/known_hosts", []byte(knownhosts.Line([]string{b.addr}, key)+"\n"))
}

// Start runs sshd, on the same port as before.
func (b *Bastion) Start() {
	b.t.Helper()
	command := []string{daemontest.Program(b.t, "sshd"), "-D", "-e", "-f", filepath.Join(b.dir, "config")}
	if os.Getuid() == 0 {
		// The processes of connections end with that of the listener.
		command = append([]string{"unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", asRoot, "sh", b.dir}, command...)
	}
	b.cmd = exec.CommandContext(b.t.Context(), command[0], command[1:]...)
	b.cmd.Stderr = b.t.Output()
	if err := b.cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		c, err := new(net.Dialer).DialContext(b.t.Context(), "tcp", b.addr)
		if err == nil {
			_ = c.Close()
			return
		}
		if time.Now().After(end) {
			b.t.Fatalf("sshd does not listen: %v", err)
		}
	}
}

// Stop kills sshd with all of its connections.
func (b *Bastion) Stop() {
	if b.cmd == nil {
		return
	}
	_ = b.cmd.Process.Kill()
	_ = b.cmd.Wait()
	b.cmd = nil
}
