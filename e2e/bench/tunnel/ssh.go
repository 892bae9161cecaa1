// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"time"
)

// errNoSSH says why `ssh -D` is not measured.
var errNoSSH = errors.New("ssh, ssh-keygen and sshd are needed (Debian: openssh-server)")

// findSSH returns the path of sshd, which must be absolute.
func findSSH() (string, error) {
	for _, name := range []string{"ssh", "ssh-keygen"} {
		if _, err := exec.LookPath(name); err != nil {
			return "", fmt.Errorf("%w: %w", errNoSSH, err)
		}
	}
	for _, path := range []string{"/usr/sbin/sshd", "/usr/local/sbin/sshd"} {
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%w: no sshd", errNoSSH)
}

// startSSH runs a private sshd on the loopback address with keys of its own, and
// `ssh -D` to it. In the tables the client stands for the server, sshd for the
// agent.
func startSSH() (*rig, error) {
	sshd, err := findSSH()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "bt")
	if err != nil {
		return nil, err
	}
	r := &rig{pair: pair{name: "ssh -D"}, dir: dir}
	if err := r.runSSH(sshd); err != nil {
		r.stop()
		return nil, err
	}
	return r, nil
}

func (r *rig) runSSH(sshd string) error {
	for _, key := range []string{"host", "user"} {
		cmd := exec.CommandContext(context.Background(), "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(r.dir, key))
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("ssh-keygen: %w: %s", err, out)
		}
	}
	if os.Getuid() == 0 {
		_ = os.MkdirAll("/run/sshd", 0o755) // sshd of root insists on it
	}
	port, socks := freePort(), freePort()
	config := fmt.Sprintf("ListenAddress 127.0.0.1:%d\nHostKey %s/host\nAuthorizedKeysFile %s/user.pub\nPidFile none\nStrictModes no\nUsePAM no\nPermitRootLogin yes\nMaxStartups 100\n",
		port, r.dir, r.dir)
	if err := os.WriteFile(r.dir+"/sshd_config", []byte(config), 0o600); err != nil {
		return err
	}
	d, err := start("sshd", r.dir+"/agent0.log", nil, sshd, "-D", "-e", "-f", r.dir+"/sshd_config")
	if err != nil {
		return err
	}
	r.agents = append(r.agents, d)
	me, err := user.Current()
	if err != nil {
		return err
	}
	if err := awaitPort(port); err != nil {
		return err
	}
	r.server, err = start("ssh", r.dir+"/server.log", nil, "ssh", "-F", "none", "-N", "-D", "127.0.0.1:"+strconv.Itoa(socks), "-p", strconv.Itoa(port),
		"-i", r.dir+"/user", "-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null",
		me.Username+"@127.0.0.1")
	if err != nil {
		return err
	}
	r.via = route{socksRoute, strconv.Itoa(socks)}
	if err := awaitPort(socks); err != nil {
		log, _ := os.ReadFile(r.dir + "/server.log")
		return fmt.Errorf("ssh -D did not start: %w\n%s", err, log)
	}
	return nil
}

func awaitPort(port int) (err error) {
	for range 100 {
		var c net.Conn
		if c, err = dialDirect(context.Background(), net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			return c.Close()
		}
		time.Sleep(50 * time.Millisecond)
	}
	return err
}

// socksDialer dials through SOCKS 5 without authentication (RFC 1928).
func socksDialer(port string) dialer {
	return func(ctx context.Context, address string) (net.Conn, error) {
		to, err := net.ResolveTCPAddr("tcp4", address)
		if err != nil {
			return nil, err
		}
		c, err := dialDirect(ctx, net.JoinHostPort("127.0.0.1", port))
		if err != nil {
			return nil, err
		}
		stop := context.AfterFunc(ctx, func() { c.Close() })
		defer stop()
		if err := socksConnect(c, to); err != nil {
			c.Close()
			return nil, err
		}
		return c, nil
	}
}

func socksConnect(c net.Conn, to *net.TCPAddr) error {
	if _, err := c.Write([]byte{5, 1, 0}); err != nil {
		return err
	}
	var answer [10]byte
	if _, err := io.ReadFull(c, answer[:2]); err != nil {
		return err
	}
	req := append([]byte{5, 1, 0, 1}, to.IP.To4()...)
	if _, err := c.Write(binary.BigEndian.AppendUint16(req, uint16(to.Port))); err != nil {
		return err
	}
	if _, err := io.ReadFull(c, answer[:]); err != nil {
		return err
	}
	if answer[1] != 0 {
		return fmt.Errorf("SOCKS answered %d", answer[1])
	}
	return nil
}
