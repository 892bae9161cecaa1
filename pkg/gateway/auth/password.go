// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"strings"

	"github.com/fairlead-dev/fairlead/pkg/internal/secretfile"
)

// maxLogin is the limit of RFC 1929 for a name and for a password.
const maxLogin = 255

// Password is a name and a password that clients must know. It keeps only digests, whose
// comparison takes the same time whatever the client sent.
type Password struct{ name, password [sha256.Size]byte }

// NewPassword returns the password of a login.
func NewPassword(l Login) (*Password, error) {
	for what, text := range map[string]string{"user name": l.Name, "password": l.Password} {
		if text == "" || len(text) > maxLogin {
			return nil, fmt.Errorf("the %s has %d bytes: SOCKS5 allows 1 to %d", what, len(text), maxLogin)
		}
	}
	if strings.Contains(l.Name, ":") {
		return nil, errors.New("the user name contains a colon, which HTTP does not allow: choose another one")
	}
	return &Password{name: sha256.Sum256([]byte(l.Name)), password: sha256.Sum256([]byte(l.Password))}, nil
}

// RandomLogin returns a login for this name whose password has 128 random bits or more.
func RandomLogin(name string) Login { return Login{Name: name, Password: rand.Text()} }

// Matches reports whether the client knows both.
func (p *Password) Matches(l Login) bool {
	name, password := sha256.Sum256([]byte(l.Name)), sha256.Sum256([]byte(l.Password))
	return subtle.ConstantTimeCompare(p.name[:], name[:])&subtle.ConstantTimeCompare(p.password[:], password[:]) == 1
}

// ReadLogin reads "name:password" from the first line of a file that only its owner can read.
func ReadLogin(path string) (Login, error) {
	text, err := secretfile.Read(path)
	if err != nil {
		return Login{}, err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	name, password, ok := strings.Cut(strings.TrimSuffix(line, "\r"), ":")
	if !ok {
		return Login{}, fmt.Errorf("%s: the first line must be name:password", path)
	}
	return Login{Name: name, Password: password}, nil
}
