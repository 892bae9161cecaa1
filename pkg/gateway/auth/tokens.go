// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/token/cache"
	"k8s.io/apiserver/pkg/authentication/user"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
)

const (
	acceptedFor   = time.Minute
	refusedFor    = 10 * time.Second
	undecidedFor  = time.Second // of a refusal with an error
	reviewTimeout = 10 * time.Second
)

// NewTokens reviews bearer tokens with TokenReviews and keeps the answers for some time.
// With audiences, tokens must be valid for one of them.
func NewTokens(client authenticationclient.TokenReviewInterface, audiences []string) authenticator.Token {
	m := &memory{key: make([]byte, sha256.Size), accepted: utilcache.NewExpiring()}
	_, _ = rand.Read(m.key) // it never fails
	return &tokens{cache.New(&reviewer{client, audiences, m}, false, acceptedFor, refusedFor), m, utilcache.NewExpiring()}
}

// tokens are upstream's cache of answers, which does not say what is in it, and keeps all refusals for the same time.
type tokens struct {
	authenticator.Token
	*memory
	undecided *utilcache.Expiring
}

// errUndecided is for a token that the API server refuses with an error. It may be a wrong one, or the API server could not verify
// it, for example because its webhook or the keys of its OIDC issuer did not answer: the answer does not tell these apart.
var errUndecided = errors.New("the API server refused the token with an error")

// AuthenticateToken implements authenticator.Token.
func (t *tokens) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	key := t.hash(token)
	if _, ok := t.undecided.Get(key); ok {
		return nil, false, nil
	}
	r, ok, err := t.Token.AuthenticateToken(ctx, token)
	if errors.Is(err, errUndecided) {
		t.undecided.Set(key, struct{}{}, undecidedFor)
		return nil, false, nil
	}
	return r, ok, err
}

// memory has the tokens that reviews have accepted, as hashes with a random key. Wrong tokens take no place in it.
type memory struct {
	key      []byte
	accepted *utilcache.Expiring
}

// Remembers reports whether a token is accepted without another review.
func (m *memory) Remembers(token string) bool {
	_, ok := m.accepted.Get(m.hash(token))
	return ok
}

func (m *memory) add(token string) { m.accepted.Set(m.hash(token), struct{}{}, acceptedFor) }

func (m *memory) hash(token string) (sum [sha256.Size]byte) {
	h := hmac.New(sha256.New, m.key)
	_, _ = h.Write([]byte(token))
	h.Sum(sum[:0])
	return sum
}

type reviewer struct {
	client    authenticationclient.TokenReviewInterface
	audiences []string
	memory    *memory
}

// AuthenticateToken implements authenticator.Token.
func (r *reviewer) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: r.audiences}}
	answer, err := r.client.Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return nil, false, err
	}
	s := answer.Status
	switch {
	case !s.Authenticated && s.Error != "":
		return nil, false, errUndecided
	case !s.Authenticated:
		return nil, false, nil
	}
	// An API server that does not know about audiences returns none.
	if len(r.audiences) > 0 && !slices.ContainsFunc(s.Audiences, func(a string) bool { return slices.Contains(r.audiences, a) }) {
		return nil, false, nil
	}
	if s.User.Username != "" {
		r.memory.add(token) // before the cache has it, so that it forgets it before the cache does
	}
	extra := map[string][]string{}
	for key, values := range s.User.Extra {
		extra[key] = values
	}
	return &authenticator.Response{
		Audiences: s.Audiences,
		User:      &user.DefaultInfo{Name: s.User.Username, UID: s.User.UID, Groups: s.User.Groups, Extra: extra},
	}, true, nil
}
