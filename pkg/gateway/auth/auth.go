// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	authx509 "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authentication/user"
)

// TokenUser is the user name that marks a password as a bearer token. Clients that take a
// proxy from a URL can send nothing but a name and a password.
const TokenUser = "token"

// ErrUnauthenticated is the error for clients whose credentials are missing or wrong.
var ErrUnauthenticated = errors.New("unauthenticated")

// Credentials are what a client presented.
type Credentials struct {
	// TLS is the state of the client's TLS connection, nil without TLS.
	TLS *tls.ConnectionState
	// Login is the name and the password, nil if the client sent none.
	Login *Login
	// Token is a bearer token, empty if the client sent none.
	Token string
}

// Login is a user name with a password.
type Login struct{ Name, Password string }

// Authenticator finds out who a client is. A field that is not set is a method that is not
// accepted; the zero value refuses each client.
type Authenticator struct {
	// Password is the one that clients must know.
	Password *Password
	// Certificates accepts client certificates. The TLS configuration of the listener must
	// have verified them.
	Certificates bool
	// Tokens reviews bearer tokens.
	Tokens authenticator.Token
	// Anonymous is the user of clients that present nothing.
	Anonymous user.Info
}

// AcceptsLogin reports whether any name and password can be right.
func (a *Authenticator) AcceptsLogin() bool { return a.Password != nil || a.Tokens != nil }

// Challenges returns the values of Proxy-Authenticate for clients that are not authenticated.
func (a *Authenticator) Challenges() (all []string) {
	if a.AcceptsLogin() {
		all = append(all, `Basic realm="fairlead", charset="UTF-8"`)
	}
	if a.Tokens != nil {
		all = append(all, `Bearer realm="fairlead"`)
	}
	return all
}

// Authenticate returns the user whom the credentials identify. A password or token that a
// client sends must be valid, even if its certificate alone would be enough. Errors wrap
// ErrUnauthenticated, unless Authenticate could not verify the credentials, for example
// because the API server did not answer.
func (a *Authenticator) Authenticate(ctx context.Context, c Credentials) (user.Info, error) {
	switch {
	case c.Login != nil && a.Tokens != nil && c.Login.Name == TokenUser:
		return a.review(ctx, c.Login.Password)
	case c.Login != nil:
		if a.Password != nil && a.Password.Matches(*c.Login) {
			return &user.DefaultInfo{Name: c.Login.Name, Groups: []string{user.AllAuthenticated}}, nil
		}
		return nil, fmt.Errorf("%w: wrong user name or password", ErrUnauthenticated)
	case c.Token != "" && a.Tokens != nil:
		return a.review(ctx, c.Token)
	case c.Token != "":
		return nil, fmt.Errorf("%w: bearer tokens are not accepted here", ErrUnauthenticated)
	}
	return a.WithoutLogin(c.TLS)
}

// token returns the bearer token of the credentials, also one that is the password of TokenUser.
func (a *Authenticator) token(c Credentials) (token string, ok bool) {
	switch {
	case a.Tokens == nil:
		return "", false
	case c.Login != nil:
		return c.Login.Password, c.Login.Name == TokenUser
	}
	return c.Token, c.Token != ""
}

// Reviews reports whether the credentials hold a bearer token that the API server has to review. It has not if it has
// accepted the token a short time ago.
func (a *Authenticator) Reviews(c Credentials) bool {
	token, ok := a.token(c)
	m, remembers := a.Tokens.(interface{ Remembers(token string) bool })
	return ok && !(remembers && m.Remembers(token))
}

// Guesses reports whether the credentials may be a guess of the password.
func (a *Authenticator) Guesses(c Credentials) bool {
	_, isToken := a.token(c)
	return a.Password != nil && c.Login != nil && !isToken
}

// OfOne reports whether a user is known by credentials of his own, and not by the one password or as anonymous.
func (a *Authenticator) OfOne(c Credentials, u user.Info) bool {
	_, isToken := a.token(c)
	return isToken || c.Login == nil && c.Token == "" && u != a.Anonymous
}

// WithoutLogin returns the user of a client that presents neither a password nor a token.
func (a *Authenticator) WithoutLogin(state *tls.ConnectionState) (user.Info, error) {
	if a.Certificates && state != nil && len(state.VerifiedChains) > 0 {
		return fromCertificate(state.VerifiedChains[0])
	}
	if a.Anonymous != nil {
		return a.Anonymous, nil
	}
	return nil, fmt.Errorf("%w: no credentials", ErrUnauthenticated)
}

// fromCertificate reads a certificate as kube-apiserver does: the common name is the user,
// the organizations are the groups.
func fromCertificate(chain []*x509.Certificate) (user.Info, error) {
	r, ok, err := authx509.CommonNameUserConversion.User(chain)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: client certificate: %w", ErrUnauthenticated, err)
	case !ok:
		return nil, fmt.Errorf("%w: the client certificate has no common name", ErrUnauthenticated)
	}
	return withAuthenticated(r.User), nil
}

func (a *Authenticator) review(ctx context.Context, token string) (user.Info, error) {
	if token == "" {
		return nil, fmt.Errorf("%w: the token is empty", ErrUnauthenticated)
	}
	r, ok, err := a.Tokens.AuthenticateToken(ctx, token)
	switch {
	case err != nil:
		return nil, fmt.Errorf("token review: %w", err)
	case !ok:
		return nil, fmt.Errorf("%w: the API server does not accept the token", ErrUnauthenticated)
	case r.User.GetName() == "":
		return nil, fmt.Errorf("%w: the API server names no user for the token", ErrUnauthenticated)
	}
	return withAuthenticated(r.User), nil
}

// withAuthenticated adds the group that RBAC rules name for everyone who is authenticated.
func withAuthenticated(u user.Info) user.Info {
	for _, g := range u.GetGroups() {
		if g == user.AllAuthenticated {
			return u
		}
	}
	groups := append([]string{user.AllAuthenticated}, u.GetGroups()...)
	return &user.DefaultInfo{Name: u.GetName(), UID: u.GetUID(), Groups: groups, Extra: u.GetExtra()}
}
