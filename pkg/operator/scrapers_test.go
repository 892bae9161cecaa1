// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/pkg/internal/logtest"
	"github.com/fairlead-dev/fairlead/pkg/internal/logthrottle"
)

// reviews is an API server that answers reviews, and counts them. Token good is of a user who may get /metrics, poor of one who
// may not. With down, it answers nothing.
type reviews struct {
	asked int
	down  bool
}

func (s *reviews) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.asked++
	w.Header().Set("Content-Type", "application/json")
	var answer any
	switch {
	case s.down:
		http.Error(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "message": "tokenreviews is forbidden", "code": 403}`, http.StatusForbidden)
		return
	case strings.HasSuffix(r.URL.Path, "/tokenreviews"):
		review := &authenticationv1.TokenReview{}
		_ = json.NewDecoder(r.Body).Decode(review)
		review.Status.Authenticated = review.Spec.Token == "nameless"
		if name := review.Spec.Token; name == "good" || name == "poor" {
			review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: name, Groups: []string{"g"}, Extra: map[string]authenticationv1.ExtraValue{"x": {"y"}}}}
		}
		answer = review
	default:
		review := &authorizationv1.SubjectAccessReview{}
		_ = json.NewDecoder(r.Body).Decode(review)
		spec := review.Spec
		review.Status.Allowed = spec.User == "good" && spec.Groups[0] == "g" && spec.Extra["x"][0] == "y" && spec.NonResourceAttributes.Path == "/metrics" && spec.NonResourceAttributes.Verb == "get"
		answer = review
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// TestScrapers: metrics are for users who may get them alone. An answer of the API server is kept for a while, and a failure, which the
// log shows once, is not.
func TestScrapers(t *testing.T) {
	server, now := &reviews{}, time.Now()
	api := httptest.NewServer(server)
	defer api.Close()
	var lines []string
	log := logthrottle.New(logtest.New(func(_ int, line string) { lines = append(lines, line) }), time.Hour)
	cfg := &rest.Config{Host: api.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
	s := newScrapers(kubernetes.NewForConfigOrDie(cfg), log)
	s.now = func() time.Time { return now }
	handler := s.guard(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("metrics")) }))
	ask := func(method, authorization string) int {
		w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), method, "/metrics", nil)
		r.Header.Set("Authorization", authorization)
		handler.ServeHTTP(w, r)
		if has := w.Body.String() == "metrics"; has != (w.Code == http.StatusOK) {
			t.Errorf("%s %q: %d %s", method, authorization, w.Code, w.Body)
		}
		return w.Code
	}
	for _, step := range []struct {
		method, authorization string
		status, asked         int
	}{
		{http.MethodGet, "", http.StatusUnauthorized, 0},
		{http.MethodGet, "Basic good", http.StatusUnauthorized, 0},
		{http.MethodGet, "Bearer ", http.StatusUnauthorized, 0},
		{http.MethodGet, "Bearer good", http.StatusOK, 2},
		{http.MethodGet, "bearer good", http.StatusOK, 0},
		{http.MethodPost, "Bearer good", http.StatusForbidden, 2},
		{http.MethodGet, "Bearer poor", http.StatusForbidden, 2},
		{http.MethodGet, "Bearer poor", http.StatusForbidden, 0},
		{http.MethodGet, "Bearer nameless", http.StatusUnauthorized, 1},
		{http.MethodGet, "Bearer forged", http.StatusUnauthorized, 1},
		{http.MethodGet, "Bearer forged", http.StatusUnauthorized, 0},
	} {
		before := server.asked
		if status := ask(step.method, step.authorization); status != step.status || server.asked-before != step.asked {
			t.Errorf("%s %q: %d after %d reviews, want %+v", step.method, step.authorization, status, server.asked-before, step)
		}
	}
	now = now.Add(scraperDenied)
	before := server.asked
	if ask(http.MethodGet, "Bearer forged"); server.asked != before+1 {
		t.Error("a refusal is kept for good")
	}
	server.down = true
	if status := ask(http.MethodGet, "Bearer good"); status != http.StatusOK {
		t.Errorf("while the answer is kept: %d", status)
	}
	now = now.Add(scraperAllowed)
	for range 100 {
		if status := ask(http.MethodGet, "Bearer good"); status != http.StatusInternalServerError {
			t.Errorf("without an answer: %d", status)
		}
	}
	if len(lines) != 1 || !strings.Contains(lines[0], "tokenreviews is forbidden") {
		t.Errorf("logged %q, want one line with the reason", lines)
	}
	server.down = false
	if status := ask(http.MethodGet, "Bearer good"); status != http.StatusOK {
		t.Errorf("after a failure: %d", status)
	}
}

// TestLean: the operator links none of what would be a large part of its memory.
func TestLean(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "../../cmd/fairlead-operator").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"google.golang.org/grpc", "github.com/google/cel-go/cel", "go.opentelemetry.io/otel/sdk/trace", "k8s.io/apiserver/pkg/authentication/authenticatorfactory"} {
		if strings.Contains("\n"+string(out), "\n"+name+"\n") {
			t.Errorf("the operator links %s", name)
		}
	}
}
