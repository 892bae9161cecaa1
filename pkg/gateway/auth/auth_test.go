// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

func password(t *testing.T, name, text string) *Password {
	t.Helper()
	p, err := NewPassword(Login{Name: name, Password: text})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func verified(subject pkix.Name) *tls.ConnectionState {
	return &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{{Subject: subject}}}}
}

// TestAuthenticate: each method accepts exactly the clients with valid credentials for it. A
// method that is not configured accepts no client. A client that sends a wrong password or
// token is rejected even if its certificate is valid.
func TestAuthenticate(t *testing.T) {
	cert := verified(pkix.Name{CommonName: "carol", Organization: []string{"ops"}})
	unverified := &tls.ConnectionState{PeerCertificates: cert.VerifiedChains[0]}
	withPassword := &Authenticator{Password: password(t, "alice", "secret")}
	withCertificates := &Authenticator{Certificates: true}
	both := &Authenticator{Password: withPassword.Password, Certificates: true}
	open := &Authenticator{Anonymous: &user.DefaultInfo{Name: user.Anonymous}}
	for _, c := range []struct {
		name string
		a    *Authenticator
		cred Credentials
		user string // empty: refused
	}{
		{"password", withPassword, Credentials{Login: &Login{"alice", "secret"}}, "alice"},
		{"wrong password", withPassword, Credentials{Login: &Login{"alice", "secreT"}}, ""},
		{"part of the password", withPassword, Credentials{Login: &Login{"alice", "secre"}}, ""},
		{"wrong name", withPassword, Credentials{Login: &Login{"bob", "secret"}}, ""},
		{"shifted", withPassword, Credentials{Login: &Login{"alices", "ecret"}}, ""},
		{"nothing", withPassword, Credentials{}, ""},
		{"certificate without --client-ca", withPassword, Credentials{TLS: cert}, ""},
		{"token without token review", withPassword, Credentials{Token: "x"}, ""},
		{"certificate", withCertificates, Credentials{TLS: cert}, "carol"},
		{"unverified certificate", withCertificates, Credentials{TLS: unverified}, ""},
		{"certificate without a name", withCertificates, Credentials{TLS: verified(pkix.Name{})}, ""},
		{"password without one configured", withCertificates, Credentials{TLS: cert, Login: &Login{"carol", ""}}, ""},
		{"certificate or password: certificate", both, Credentials{TLS: cert}, "carol"},
		{"certificate or password: password", both, Credentials{TLS: &tls.ConnectionState{}, Login: &Login{"alice", "secret"}}, "alice"},
		{"certificate and wrong password", both, Credentials{TLS: cert, Login: &Login{"carol", "x"}}, ""},
		{"anonymous", open, Credentials{}, user.Anonymous},
		{"zero value", &Authenticator{}, Credentials{TLS: cert}, ""},
	} {
		u, err := c.a.Authenticate(t.Context(), c.cred)
		switch {
		case c.user == "" && !errors.Is(err, ErrUnauthenticated):
			t.Errorf("%s: %v, %v", c.name, u, err)
		case c.user != "" && (err != nil || u.GetName() != c.user):
			t.Errorf("%s: %v, %v", c.name, u, err)
		}
	}
	u, err := withCertificates.Authenticate(t.Context(), Credentials{TLS: cert})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{user.AllAuthenticated, "ops"}, u.GetGroups()); diff != "" {
		t.Error(diff)
	}
}

// TestTokens: the API server reviews a bearer token, also one sent as a password, once for many
// connections. A client is rejected if the review rejects its token, returns another audience,
// names no user or fails.
func TestTokens(t *testing.T) {
	client := fake.NewClientset()
	reviews := 0
	client.PrependReactor("create", "tokenreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		reviews++
		r := action.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenReview).DeepCopy()
		r.Status.Authenticated = r.Spec.Token == "good" || r.Spec.Token == "other-audience"
		r.Status.User = authenticationv1.UserInfo{Username: "dave", Groups: []string{"dev"}}
		r.Status.Audiences = r.Spec.Audiences
		if r.Spec.Token == "other-audience" {
			r.Status.Audiences = []string{"else"}
		}
		if r.Spec.Token == "nameless" { // as a webhook for tokens may answer
			r.Status.Authenticated, r.Status.User.Username = true, ""
		}
		if r.Spec.Token == "down" {
			return true, nil, errors.New("down")
		}
		return true, r, nil
	})
	a := &Authenticator{Tokens: NewTokens(client.AuthenticationV1().TokenReviews(), []string{"fairlead"})}
	for _, c := range []Credentials{{Token: "good"}, {Login: &Login{TokenUser, "good"}}, {Token: "good"}} {
		u, err := a.Authenticate(t.Context(), c)
		if err != nil || u.GetName() != "dave" || !cmp.Equal(u.GetGroups(), []string{user.AllAuthenticated, "dev"}) {
			t.Errorf("%+v: %v, %v", c, u, err)
		}
	}
	if reviews != 1 {
		t.Errorf("%d reviews of one token", reviews)
	}
	if a.Reviews(Credentials{Token: "good"}) || a.Reviews(Credentials{Login: &Login{TokenUser, "good"}}) {
		t.Error("a token that was accepted is to be reviewed again")
	}
	before := reviews
	if u, err := a.Authenticate(t.Context(), Credentials{Login: &Login{TokenUser, ""}}); !errors.Is(err, ErrUnauthenticated) || reviews != before {
		t.Errorf("an empty token: %v, %v, and %d reviews", u, err, reviews-before)
	}
	for _, c := range []Credentials{{Token: "bad"}, {Token: "other-audience"}, {Token: "nameless"}, {Login: &Login{TokenUser, "nameless"}}, {Login: &Login{TokenUser, ""}}, {Login: &Login{"dave", "good"}}, {}} {
		if u, err := a.Authenticate(t.Context(), c); !errors.Is(err, ErrUnauthenticated) {
			t.Errorf("%+v: %v, %v", c, u, err)
		}
		if login := c.Login; c.Token != "" && !a.Reviews(c) || login != nil && login.Name == TokenUser && !a.Reviews(c) {
			t.Errorf("%+v counts as accepted", c)
		}
	}
	if u, err := a.Authenticate(t.Context(), Credentials{Token: "down"}); err == nil || errors.Is(err, ErrUnauthenticated) {
		t.Errorf("a review that failed: %v, %v", u, err)
	}
}

// TestReadLogin: a password that other users can read, or that SOCKS5 cannot carry, is refused.
func TestReadLogin(t *testing.T) {
	path := filepath.Join(t.TempDir(), "login")
	write := func(text string, mode os.FileMode) (Login, error) {
		_ = os.Remove(path)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return ReadLogin(path)
	}
	if l, err := write("alice:se:cret\nmore\n", 0o600); err != nil || l != (Login{"alice", "se:cret"}) {
		t.Errorf("%+v, %v", l, err)
	}
	for text, mode := range map[string]os.FileMode{"alice:secret": 0o640, "alice": 0o600} {
		if _, err := write(text, mode); err == nil {
			t.Errorf("%q with mode %v is accepted", text, mode)
		}
	}
	for _, l := range []Login{{"", "x"}, {"x", ""}, {strings.Repeat("a", 256), "x"}, {"x", strings.Repeat("a", 256)}, {"a:b", "x"}} {
		if _, err := NewPassword(l); err == nil {
			t.Errorf("%+v is accepted", l)
		}
	}
	if a, b := RandomLogin("x"), RandomLogin("x"); a == b || len(a.Password) < 22 {
		t.Errorf("%+v, %+v", a, b)
	}
}
