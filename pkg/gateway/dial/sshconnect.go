// SPDX-License-Identifier: Apache-2.0

package dial

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
)

// connectTimeout bounds an attempt to connect to a bastion.
const connectTimeout = 20 * time.Second

// watchedConn notes when the network connection breaks. The SSH library then lets channels
// seem to end in an orderly way.
type watchedConn struct {
	net.Conn
	broken atomic.Bool
}

// Read reads.
func (w *watchedConn) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if err != nil {
		w.broken.Store(true)
	}
	return n, err
}

// Close closes.
func (w *watchedConn) Close() error {
	w.broken.Store(true)
	return w.Conn.Close()
}

func (c *sshClient) lost() bool { return c.wire.broken.Load() }

// attempt connects to the bastion once.
func (p *sshPath) attempt() (*sshClient, error) {
	ctx, cancel := context.WithTimeout(p.life, connectTimeout)
	defer cancel()
	callback, algorithms, err := p.hostKeys()
	if err != nil {
		return nil, err
	}
	keys := p.keys()
	defer keys.release()
	config := &ssh.ClientConfig{
		User: p.target.user, HostKeyCallback: callback, HostKeyAlgorithms: algorithms,
		Auth: []ssh.AuthMethod{ssh.PublicKeysCallback(func() ([]ssh.Signer, error) { return keys.signers, nil })},
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", p.target.address())
	if err != nil {
		return nil, gateway.Errorf(gateway.ReasonPathDown, "check the address and that its sshd runs", "connect to bastion %s: %w", p.target, err)
	}
	wire := &watchedConn{Conn: conn}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	c, channels, requests, err := ssh.NewClientConn(wire, p.target.address(), config)
	if !stop() && err == nil {
		_ = c.Close()
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = conn.Close()
		return nil, p.connectError(ctx, err, keys)
	}
	return &sshClient{Client: ssh.NewClient(c, channels, requests), wire: wire, down: make(chan struct{})}, nil
}

// connectError says why there is no connection. ReasonDenied means that a person has to act.
func (p *sshPath) connectError(ctx context.Context, err error, keys sshKeys) error {
	signers := len(keys.signers)
	var known *gateway.Error
	switch {
	case errors.As(err, &known):
		return known
	case ctx.Err() != nil:
		return gateway.Errorf(gateway.ReasonPathDown, "check the address and that its sshd runs", "bastion %s did not answer within %v", p.target, connectTimeout)
	case !strings.Contains(err.Error(), "unable to authenticate"):
		return gateway.Errorf(gateway.ReasonPathDown, "check that it is an SSH server", "connect to bastion %s: %w", p.target, err)
	case len(keys.exposed) > 0:
		return gateway.Errorf(gateway.ReasonDenied, "",
			"bastion %s accepts none of %d keys, and an identity file is not used: %w", p.target, signers, errors.Join(keys.exposed...))
	case len(keys.locked) > 0:
		return gateway.Errorf(gateway.ReasonDenied, "add it to an SSH agent: ssh-add "+keys.locked[0],
			"bastion %s accepts none of %d keys, and %s needs a passphrase", p.target, signers, strings.Join(keys.locked, ", "))
	case signers == 0:
		return gateway.Errorf(gateway.ReasonDenied, "start ssh-agent and run ssh-add, or name a private key", "there is no key to log in to bastion %s", p.target)
	}
	return gateway.Errorf(gateway.ReasonDenied, fmt.Sprintf("check with ssh -p %s %s@%s true", p.target.port, p.target.user, p.target.host),
		"bastion %s accepts none of %d keys: %w", p.target, signers, err)
}

// hostKeys returns a check of host keys and certificates, and the algorithms of those that are known: a
// server must not offer a key of another kind, which would look like a changed one.
func (p *sshPath) hostKeys() (ssh.HostKeyCallback, []string, error) {
	var files []string
	for _, f := range p.o.KnownHosts {
		if _, err := os.Stat(f); err == nil {
			files = append(files, f)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, nil, gateway.Errorf(gateway.ReasonDenied, "make it readable", "read known hosts: %w", err)
		}
	}
	check, err := knownhosts.New(files...)
	if err != nil {
		return nil, nil, gateway.Errorf(gateway.ReasonDenied, "correct this line", "read known hosts: %w", err)
	}
	var algorithms []string
	var unknown *knownhosts.KeyError
	if err := check(p.target.address(), unresolved{}, noKey{}); errors.As(err, &unknown) {
		algorithms = hostKeyAlgorithms(unknown.Want)
	}
	return func(host string, _ net.Addr, key ssh.PublicKey) error {
		err := check(host, unresolved{}, key)
		if certificate, ok := key.(*ssh.Certificate); err != nil && ok {
			var revoked *knownhosts.RevokedError
			if ca := check(host, unresolved{}, certificate.SignatureKey); errors.As(ca, &revoked) {
				return p.hostKeyError(fmt.Errorf("the authority of its certificate is revoked: %w", ca), key) // also if the key is known, as in ssh
			}
			if check(host, unresolved{}, certificate.Key) == nil {
				err = nil // the certificate is of another authority, or has expired, but the key is known
			}
		}
		if err != nil {
			return p.hostKeyError(err, key)
		}
		return nil
	}, algorithms, nil
}

// unresolved stands for the bastion's IP address, which known_hosts may list under other
// names: only the name that the user gave counts.
type unresolved struct{}

// Network returns the kind of the address.
func (unresolved) Network() string { return "tcp" }

// String returns an address that is in no file.
func (unresolved) String() string { return "0.0.0.0:0" }

// noKey is a key that no file lists.
type noKey struct{}

// Type returns a kind that does not exist.
func (noKey) Type() string { return "none" }

// Marshal returns no key.
func (noKey) Marshal() []byte { return nil }

// Verify always fails.
func (noKey) Verify([]byte, *ssh.Signature) error { return errors.New("not a key") }

func (p *sshPath) hostKeyError(err error, key ssh.PublicKey) error {
	var wrong *knownhosts.KeyError
	fingerprint := ssh.FingerprintSHA256(key)
	if !errors.As(err, &wrong) {
		return gateway.Errorf(gateway.ReasonDenied, "do not connect: ask who runs the bastion", "host key %s %s of bastion %s: %w", key.Type(), fingerprint, p.target, err)
	}
	if len(wrong.Want) == 0 {
		file := "~/.ssh/known_hosts"
		if len(p.o.KnownHosts) > 0 {
			file = p.o.KnownHosts[0]
		}
		return gateway.Errorf(gateway.ReasonDenied,
			fmt.Sprintf("compare the fingerprint with the one that its administrator gave you, then run: ssh-keyscan -p %s %s >> %s", p.target.port, p.target.host, file),
			"the host key of bastion %s is unknown: %s %s", p.target, key.Type(), fingerprint)
	}
	keys, authorities := splitKnown(wrong.Want)
	if len(keys) == 0 {
		return gateway.Errorf(gateway.ReasonDenied,
			"ask who runs the bastion why its sshd shows no certificate of this authority (HostCertificate in sshd_config)",
			"the host key of bastion %s is no certificate: it is %s %s, and only the authority %s is known", p.target, key.Type(), fingerprint, listKnown(authorities))
	}
	return gateway.Errorf(gateway.ReasonDenied,
		fmt.Sprintf("another host may be answering: ask who runs the bastion; only if its key was replaced, run: ssh-keygen -R %s", knownhosts.Normalize(p.target.address())),
		"the host key of bastion %s has changed: it is %s %s, known is %s", p.target, key.Type(), fingerprint, listKnown(keys))
}

func listKnown(keys []knownhosts.KnownKey) string {
	var all []string
	for _, k := range keys {
		all = append(all, fmt.Sprintf("%s %s (%s:%d)", k.Key.Type(), ssh.FingerprintSHA256(k.Key), k.Filename, k.Line))
	}
	return strings.Join(all, ", ")
}

// home is the user's home directory, or "".
func home() string {
	dir, _ := os.UserHomeDir()
	return dir
}

func inHome(name string) string { return filepath.Join(home(), ".ssh", name) }
