// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/lru"

	"github.com/fairlead-dev/fairlead/pkg/internal/logthrottle"
)

// How long the API server's answers about a client of the metrics are kept, for how many of them, and how long one may take.
const (
	scraperAllowed = time.Minute
	scraperDenied  = 10 * time.Second
	scrapersKept   = 256
	scraperReviews = 10 * time.Second
)

// scrapers lets requests for metrics through whose bearer token is of a user that may get the path. The API server says
// so, by a TokenReview and a SubjectAccessReview.
//
// Why this is not controller-runtime's filter: that links the authenticators and authorizers of k8s.io/apiserver, with
// gRPC, OpenTelemetry and CEL, which are a fifth of the program and of its memory.
type scrapers struct {
	client kubernetes.Interface
	log    *logthrottle.Log
	now    func() time.Time
	known  *lru.Cache
}

func newScrapers(client kubernetes.Interface, log *logthrottle.Log) *scrapers {
	return &scrapers{client: client, log: log, now: time.Now, known: lru.New(scrapersKept)}
}

// scrape is what a decision is about. The token is hashed: it is not needed again.
type scrape struct {
	token        [sha256.Size]byte
	method, path string
}

type decision struct {
	status int
	until  time.Time
}

// guard answers requests that next must not see.
func (s *scrapers) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch status := s.decide(r); status {
		case http.StatusOK:
			next.ServeHTTP(w, r)
		default:
			http.Error(w, http.StatusText(status), status)
		}
	})
}

// decide returns 200 for a request that may be answered. An error is not kept.
func (s *scrapers) decide(r *http.Request) int {
	scheme, token, _ := strings.Cut(strings.TrimSpace(r.Header.Get("Authorization")), " ")
	if token = strings.TrimSpace(token); token == "" || !strings.EqualFold(scheme, "bearer") {
		return http.StatusUnauthorized
	}
	key := scrape{sha256.Sum256([]byte(token)), r.Method, r.URL.Path}
	if kept, ok := s.known.Get(key); ok && s.now().Before(kept.(decision).until) {
		return kept.(decision).status
	}
	ctx, cancel := context.WithTimeout(r.Context(), scraperReviews)
	defer cancel()
	status, err := s.review(ctx, token, r)
	if err != nil {
		s.log.Add(logthrottle.Event{Peer: "metrics", Message: "Cannot check a request for metrics", Err: err})
		return http.StatusInternalServerError
	}
	keep := scraperDenied
	if status == http.StatusOK {
		keep = scraperAllowed
	}
	s.known.Add(key, decision{status, s.now().Add(keep)})
	return status
}

// review asks the API server who has the token, and whether this user may send the request.
func (s *scrapers) review(ctx context.Context, token string, r *http.Request) (int, error) {
	who, err := s.client.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	if err != nil {
		return 0, fmt.Errorf("review the token: %w", err)
	}
	user := who.Status.User
	if !who.Status.Authenticated || user.Username == "" {
		return http.StatusUnauthorized, nil
	}
	extra := map[string]authorizationv1.ExtraValue{}
	for name, values := range user.Extra {
		extra[name] = authorizationv1.ExtraValue(values)
	}
	may, err := s.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: strings.ToLower(r.Method), Path: r.URL.Path},
	}}, metav1.CreateOptions{})
	if err != nil {
		return 0, fmt.Errorf("review the access of user %s: %w", user.Username, err)
	}
	if !may.Status.Allowed {
		return http.StatusForbidden, nil
	}
	return http.StatusOK, nil
}
