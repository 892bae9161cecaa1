package kube

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// TokenAuth checks agents' tokens by TokenReview.
type TokenAuth struct {
	Client         *Client
	Namespace      string
	ServiceAccount string
	Audience       string
	// Keep is for how long an accepted token is not asked about again, so that
	// thousands of agents that reconnect do not become as many reviews. 0 asks
	// every time.
	Keep time.Duration

	mu   sync.Mutex
	seen map[[32]byte]time.Time
}

// Errors of token checks.
var (
	ErrNoToken   = errors.New("agent sent no token")
	ErrBadToken  = errors.New("token is not valid")
	ErrAudience  = errors.New("token is not for this audience")
	ErrWrongUser = errors.New("token is of another account")
)

type tokenReview struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Spec       struct {
		Token     string   `json:"token"`
		Audiences []string `json:"audiences"`
	} `json:"spec"`
	Status struct {
		Authenticated bool     `json:"authenticated"`
		Error         string   `json:"error"`
		Audiences     []string `json:"audiences"`
		User          struct {
			Username string `json:"username"`
		} `json:"user"`
	} `json:"status"`
}

// Check implements server.TokenChecker.
func (a *TokenAuth) Check(ctx context.Context, token string) error {
	if token == "" {
		return ErrNoToken
	}
	key := sha256.Sum256([]byte(token))
	if a.fresh(key) {
		return nil
	}
	tr := tokenReview{APIVersion: "authentication.k8s.io/v1", Kind: "TokenReview"}
	tr.Spec.Token, tr.Spec.Audiences = token, []string{a.Audience}
	if err := a.Client.do(ctx, "POST", "/apis/authentication.k8s.io/v1/tokenreviews", &tr, &tr); err != nil {
		return fmt.Errorf("reviewing token: %w", err)
	}
	if err := a.judge(&tr); err != nil {
		return err
	}
	a.remember(key)
	return nil
}

func (a *TokenAuth) judge(tr *tokenReview) error {
	switch {
	case tr.Status.Error != "":
		return fmt.Errorf("%w: %s", ErrBadToken, tr.Status.Error)
	case !tr.Status.Authenticated:
		return ErrBadToken
	// An API server that does not know audiences returns none; it has then not
	// checked the one that was asked for.
	case !slices.Contains(tr.Status.Audiences, a.Audience):
		return fmt.Errorf("%w: %q, but for %q", ErrAudience, a.Audience, tr.Status.Audiences)
	}
	if want := "system:serviceaccount:" + a.Namespace + ":" + a.ServiceAccount; tr.Status.User.Username != want {
		return fmt.Errorf("%w: %q instead of %q", ErrWrongUser, tr.Status.User.Username, want)
	}
	return nil
}

func (a *TokenAuth) fresh(key [32]byte) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return time.Since(a.seen[key]) < a.Keep
}

func (a *TokenAuth) remember(key [32]byte) {
	if a.Keep <= 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.seen == nil {
		a.seen = map[[32]byte]time.Time{}
	}
	now := time.Now()
	for k, t := range a.seen {
		if now.Sub(t) >= a.Keep {
			delete(a.seen, k)
		}
	}
	a.seen[key] = now
}
