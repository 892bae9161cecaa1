// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
)

// TestUndecidedReviews: a refusal with an error is kept for a second, in which many connections cost one review, because the API
// server may have been unable to verify the token. One without an error is kept for longer.
func TestUndecidedReviews(t *testing.T) {
	for text, kept := range map[string]time.Duration{"[invalid bearer token, the webhook does not answer]": undecidedFor, "": refusedFor} {
		synctest.Test(t, func(t *testing.T) {
			client, reviews, right := fake.NewClientset(), 0, false
			client.PrependReactor("create", "tokenreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
				reviews++
				r := action.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenReview).DeepCopy()
				r.Status = authenticationv1.TokenReviewStatus{Authenticated: right, User: authenticationv1.UserInfo{Username: "dave"}}
				if !right {
					r.Status.Error = text
				}
				return true, r, nil
			})
			a := &Authenticator{Tokens: NewTokens(client.AuthenticationV1().TokenReviews(), nil)}
			cred := Credentials{Token: "of-dave"}
			ask := func(wantReviews int) {
				t.Helper()
				if u, err := a.Authenticate(t.Context(), cred); !errors.Is(err, ErrUnauthenticated) {
					t.Errorf("error %q: %v, %v", text, u, err)
				}
				if !a.Reviews(cred) {
					t.Errorf("error %q: a refused token counts as accepted", text)
				}
				if reviews != wantReviews {
					t.Errorf("error %q: %d reviews, want %d", text, reviews, wantReviews)
				}
			}
			ask(1)
			time.Sleep(kept - time.Millisecond)
			ask(1)
			time.Sleep(2 * time.Millisecond)
			ask(2)
			right = true
			time.Sleep(kept + time.Millisecond)
			if u, err := a.Authenticate(t.Context(), cred); err != nil || u.GetName() != "dave" {
				t.Errorf("error %q: after %v: %v, %v", text, kept, u, err)
			}
		})
	}
}

// TestUndecidedByAPIServer: kube-apiserver answers with an error if it cannot verify a token, here because its webhook fails. It
// accepts the same token when the webhook answers.
func TestUndecidedByAPIServer(t *testing.T) {
	testutil.Full(t, "starts an API server of its own, for what the other tests show with a fake one")
	var answers atomic.Bool
	webhook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !answers.Load() {
			http.Error(w, "not now", http.StatusForbidden) // which is not tried again
			return
		}
		var review authenticationv1.TokenReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			t.Error(err)
		}
		review.Status = authenticationv1.TokenReviewStatus{Authenticated: review.Spec.Token == "of-dave", User: authenticationv1.UserInfo{Username: "dave"}, Audiences: review.Spec.Audiences}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(review)
	}))
	t.Cleanup(webhook.Close)
	config := clientcmdapi.NewConfig()
	config.Clusters["webhook"] = &clientcmdapi.Cluster{Server: webhook.URL}
	config.Contexts["webhook"] = &clientcmdapi.Context{Cluster: "webhook"}
	config.CurrentContext = "webhook"
	path := filepath.Join(t.TempDir(), "webhook")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	cp := daemontest.StartControlPlane(t, "--authentication-token-webhook-config-file="+path, "--authentication-token-webhook-version=v1")
	client := cp.Client.AuthenticationV1().TokenReviews()
	r, a := &reviewer{client: client, memory: NewTokens(client, nil).(*tokens).memory}, &Authenticator{Tokens: NewTokens(client, nil)}
	if _, ok, err := r.AuthenticateToken(t.Context(), "of-dave"); ok || !errors.Is(err, errUndecided) {
		t.Errorf("while the webhook fails: %v, %v", ok, err)
	}
	if _, err := a.Authenticate(t.Context(), Credentials{Token: "of-dave"}); !errors.Is(err, ErrUnauthenticated) {
		t.Errorf("while the webhook fails: %v", err)
	}
	answers.Store(true)
	daemontest.Eventually(t, time.Minute, func() error {
		_, err := a.Authenticate(t.Context(), Credentials{Token: "of-dave"})
		return err
	})
}
