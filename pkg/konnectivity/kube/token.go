package kube

import (
	"context"
	"crypto/sha256"
	"errors"
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
	node  string
	err   error         // why it was refused
	kept  time.Duration // for how long that is not asked about again
}

// For how long a refused token is refused again without a review, Keep at most: agents with
// a wrong one come back every few seconds, and the requests that the API server is asked for
// a second are for others, too. It is short at first and twice as long each time, as the
// answer of an API server that could not look does not differ from that for a wrong one.
const (
	refusedFirst = time.Second
	refusedMost  = 10 * time.Second
)

// nodeKey is where a TokenReview names the node that a token is bound to.
const nodeKey = "authentication.kubernetes.io/node-name"

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
			Username string              `json:"username"`
			Extra    map[string][]string `json:"extra"`
		} `json:"user"`
	} `json:"status"`
}

// Check implements server.TokenChecker.
func (a *TokenAuth) Check(ctx context.Context, peer, token string) (node string, err error) {
	if token == "" {
		return "", ErrNoToken
	}
	key := sha256.Sum256([]byte(token))
	if t, ok := a.fresh(key); ok {
		return t.node, t.err
	}
	tr := tokenReview{APIVersion: "authentication.k8s.io/v1", Kind: "TokenReview"}
	tr.Spec.Token, tr.Spec.Audiences = token, []string{a.Audience}
	if err := a.Client.doFor(ctx, peer, "POST", "/apis/authentication.k8s.io/v1/tokenreviews", &tr, &tr); err != nil {
		return "", fmt.Errorf("reviewing token: %w", err)
	}
	if err := a.judge(&tr); err != nil {
		a.rememberRefused(key, err)
		return "", err
	}
	if n := tr.Status.User.Extra[nodeKey]; len(n) == 1 {
		node = n[0]
	}
	a.remember(key, seenToken{node: node})
	return node, nil
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
	// What was refused is known for longer: it may be refused again.
	maps.DeleteFunc(a.seen, func(_ [32]byte, t seenToken) bool { return now.Sub(t.until) >= 6*t.kept })
	t.until = now.Add(keep)
	a.seen[key] = t
}
