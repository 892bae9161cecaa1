// SPDX-License-Identifier: Apache-2.0

package dial

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"slices"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"github.com/fairlead-dev/fairlead/pkg/internal/secretfile"
)

// sshKeys are the keys of the agent and of files. Locked are files that need a passphrase,
// exposed says which files are not used because others can read them. Release closes the
// connection to the agent.
type sshKeys struct {
	signers []ssh.Signer
	locked  []string
	exposed []error
	release func()
}

// keys reads the identity files and asks the agent. With IdentitiesOnly, the agent's keys are those
// that belong to an identity file.
func (p *sshPath) keys() sshKeys {
	fromAgent, release := p.agentKeys()
	k := sshKeys{release: release}
	var fromFiles []ssh.Signer
	var listed []ssh.PublicKey
	for _, file := range p.o.IdentityFiles {
		id := p.identity(file)
		listed = append(listed, id.public)
		switch {
		case id.exposed != nil:
			k.exposed = append(k.exposed, id.exposed)
		case id.locked && !holds(fromAgent, id.public):
			k.locked = append(k.locked, file)
		case id.signer != nil:
			fromFiles = append(fromFiles, id.signer)
		}
	}
	if p.o.IdentitiesOnly {
		fromAgent = slices.DeleteFunc(fromAgent, func(s ssh.Signer) bool {
			return !slices.ContainsFunc(listed, func(key ssh.PublicKey) bool { return holds([]ssh.Signer{s}, key) })
		})
	}
	k.signers = slices.Concat(fromAgent, fromFiles)
	return k
}

// agentKeys returns the keys of the agent, and what ends the connection to it.
func (p *sshPath) agentKeys() (signers []ssh.Signer, release func()) {
	if p.o.AgentSocket == "" {
		return nil, func() {}
	}
	conn, err := net.DialTimeout("unix", p.o.AgentSocket, 5*time.Second) //nolint:noctx // a local socket
	if err != nil {
		p.logger.Error(err, "Cannot use the SSH agent")
		return nil, func() {}
	}
	_ = conn.SetDeadline(time.Now().Add(connectTimeout))
	if signers, err = agent.NewClient(conn).Signers(); err != nil {
		p.logger.Error(err, "Cannot list the keys of the SSH agent")
	}
	return signers, func() { _ = conn.Close() }
}

// identity is what an identity file holds.
type identity struct {
	signer  ssh.Signer    // nil without a key that can be used
	public  ssh.PublicKey // of the key or of FILE.pub; nil without one
	locked  bool          // the key needs a passphrase
	exposed error         // others can read the file
}

func (p *sshPath) identity(file string) (id identity) {
	data, err := secretfile.Read(file)
	var exposed *secretfile.ExposedError
	var encrypted *ssh.PassphraseMissingError
	if err == nil {
		id.signer, err = ssh.ParsePrivateKey(data)
	}
	switch {
	case err == nil:
		id.public = id.signer.PublicKey()
	case errors.As(err, &encrypted):
		id.locked, id.public = true, encrypted.PublicKey
	case errors.As(err, &exposed):
		id.exposed = err
		p.logger.Error(err, "Not using an identity file")
	case !errors.Is(err, fs.ErrNotExist):
		p.logger.Error(err, "Cannot read an identity file", "file", file)
	}
	if id.public == nil {
		id.public = publicKey(file + ".pub")
	}
	return id
}

// publicKey reads a public key; nil if there is none.
func publicKey(file string) ssh.PublicKey {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	key, _, _, _, err := ssh.ParseAuthorizedKey(data)
	if err != nil {
		return nil
	}
	return key
}

// holds reports whether the agent has a key, or a certificate of it.
func holds(signers []ssh.Signer, key ssh.PublicKey) bool {
	return key != nil && slices.ContainsFunc(signers, func(s ssh.Signer) bool {
		blob := s.PublicKey().Marshal()
		if parsed, err := ssh.ParsePublicKey(blob); err == nil {
			if cert, ok := parsed.(*ssh.Certificate); ok {
				blob = cert.Key.Marshal()
			}
		}
		return slices.Equal(blob, key.Marshal())
	})
}
