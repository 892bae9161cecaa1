// SPDX-License-Identifier: Apache-2.0

package apiclient

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
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
	// thousands of agents that reconnect do not become as many reviews; one that is
	// refused for a second of that, and for up to ten as long as it is refused again.
	// 0 asks every time.
	Keep time.Duration

	mu   sync.Mutex
	seen map[[32]byte]seenToken
}

// seenToken is what was said of a token.
type seenToken struct {
	until time.Time
	bound
	err  error         // why it was refused
	kept time.Duration // for how long that is not asked about again
}

// For how long a refused token is refused again without a review, Keep at most: agents with
// a wrong one come back every few seconds, and the requests that the API server is asked for
// a second are for others, too. It is short at first and twice as long each time, as the
// answer of an API server that could not look does not differ from that for a wrong one.
const (
	refusedFirst = time.Second
	refusedMost  = 10 * time.Second
)

// bound is what a token is bound to. A name is empty if it is not known.
type bound struct{ node, pod string }

// Where a TokenReview names what a token is bound to. A token that is bound to a Pod names its node, too.
const (
	nodeKey = "authentication.kubernetes.io/node-name"
	podKey  = "authentication.kubernetes.io/pod-name"
)

// publicError is as much of a refusal as a peer may know that is not authenticated.
type publicError string

func (e publicError) Error() string { return string(e) }

// Public returns what the peer may know of an error.
func (e publicError) Public() string { return string(e) }

// Errors of token checks.
var (
	ErrNoToken   error = publicError("agent sent no token")
	ErrBadToken  error = publicError("token is not valid")
	ErrAudience  error = publicError("token is not for this audience")
	ErrWrongUser error = publicError("token is of another account")
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
			Username string              `json:"username"`
			Extra    map[string][]string `json:"extra"`
		} `json:"user"`
	} `json:"status"`
}

// Check implements server.TokenChecker.
func (a *TokenAuth) Check(ctx context.Context, peer, token string) (node string, err error) {
	node, _, err = a.CheckPod(ctx, peer, token)
	return node, err
}

// CheckPod implements server.PodTokenChecker.
func (a *TokenAuth) CheckPod(ctx context.Context, peer, token string) (node, pod string, err error) {
	if token == "" {
		return "", "", ErrNoToken
	}
	key := sha256.Sum256([]byte(token))
	if t, ok := a.fresh(key); ok {
		return t.node, t.pod, t.err
	}
	to, refused, err := a.ask(ctx, peer, token)
	switch {
	case err != nil:
		return "", "", err
	case refused != nil:
		a.rememberRefused(key, refused)
		return "", "", refused
	}
	a.Client.known.add(peer)
	a.remember(key, seenToken{bound: to})
	return to.node, to.pod, nil
}

// reviewsPeer stands for all connected agents among the hosts whose reviews take turns.
const reviewsPeer = "connected agents"

// Review implements server.TokenReviewer.
func (a *TokenAuth) Review(ctx context.Context, token string) (refused, err error) {
	key := sha256.Sum256([]byte(token))
	to, refused, err := a.ask(ctx, reviewsPeer, token)
	switch {
	case err != nil:
		return nil, err
	case refused != nil:
		a.forget(key) // what was accepted before
		a.rememberRefused(key, refused)
		return refused, nil
	}
	a.remember(key, seenToken{bound: to})
	return nil, nil
}

// ask has the API server review a token. refused says that it did and why the token is not
// accepted.
func (a *TokenAuth) ask(ctx context.Context, peer, token string) (to bound, refused, err error) {
	tr := tokenReview{APIVersion: "authentication.k8s.io/v1", Kind: "TokenReview"}
	tr.Spec.Token, tr.Spec.Audiences = token, []string{a.Audience}
	if err := a.Client.doFor(ctx, peer, "POST", "/apis/authentication.k8s.io/v1/tokenreviews", &tr, &tr); err != nil {
		return bound{}, nil, fmt.Errorf("reviewing token: %w", err)
	}
	if err := a.judge(&tr); err != nil {
		return bound{}, err, nil
	}
	only := func(key string) string {
		if n := tr.Status.User.Extra[key]; len(n) == 1 {
			return n[0]
		}
		return ""
	}
	return bound{node: only(nodeKey), pod: only(podKey)}, nil, nil
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

func (a *TokenAuth) fresh(key [32]byte) (seenToken, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t, ok := a.seen[key]
	return t, ok && time.Now().Before(t.until)
}

// forget has a token reviewed at its next use.
func (a *TokenAuth) forget(key [32]byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.seen[key].err == nil {
		delete(a.seen, key)
	}
}

// rememberRefused keeps why a token was refused, unless it has been accepted meanwhile.
func (a *TokenAuth) rememberRefused(key [32]byte, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	before, ok := a.seen[key]
	if ok && before.err == nil && time.Now().Before(before.until) {
		return
	}
	kept := min(max(refusedFirst, 2*before.kept), refusedMost)
	a.rememberLocked(key, seenToken{err: err, kept: kept}, min(kept, a.Keep))
}

func (a *TokenAuth) remember(key [32]byte, t seenToken) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.rememberLocked(key, t, a.Keep)
}

func (a *TokenAuth) rememberLocked(key [32]byte, t seenToken, keep time.Duration) {
	if keep <= 0 {
		return
	}
	if a.seen == nil {
		a.seen = map[[32]byte]seenToken{}
	}
	now := time.Now()
	// Refused tokens are remembered for longer, as they may be refused again.
	maps.DeleteFunc(a.seen, func(_ [32]byte, t seenToken) bool { return now.Sub(t.until) >= 6*t.kept })
	t.until = now.Add(keep)
	a.seen[key] = t
}
