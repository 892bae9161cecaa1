// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
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
	reviewTimeout = 10 * time.Second
)

// NewTokens reviews bearer tokens with TokenReviews and keeps the answers for some time.
// With audiences, tokens must be valid for one of them.
func NewTokens(client authenticationclient.TokenReviewInterface, audiences []string) authenticator.Token {
	m := &memory{key: make([]byte, sha256.Size), accepted: utilcache.NewExpiring()}
	_, _ = rand.Read(m.key) // it never fails
	return &tokens{cache.New(&reviewer{client, audiences, m}, false, acceptedFor, refusedFor), m}
}

// tokens are upstream's cache of answers, which does not say what is in it.
type tokens struct {
	authenticator.Token
	*memory
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
	if !s.Authenticated {
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
