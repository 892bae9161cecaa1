// SPDX-License-Identifier: Apache-2.0

package apiproxy

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
	"github.com/fairlead-dev/fairlead/pkg/internal/httplimits"
)

// serveFew serves a proxy with as many places.
func serveFew(t *testing.T, o Options, places int) (address string) {
	t.Helper()
	h, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	limits := httplimits.Long
	limits.Conns = places
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv, done := limits.Server(h), make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(limits.Listener(halfListener{l, h.o.goneAfter})) }()
	t.Cleanup(func() { _ = srv.Close(); <-done })
	return l.Addr().String()
}

// TestWrongTokensHoldNoPlaces: clients with wrong tokens keep none with the right one out while they wait for their answers.
func TestWrongTokensHoldNoPlaces(t *testing.T) {
	api := startAPIServer(t)
	for name, failures := range map[string]*gateway.Failures{"of a file": gateway.NewFailures(time.Minute), "random": nil} {
		t.Run("a token "+name, func(t *testing.T) {
			const places = 4
			address := serveFew(t, Options{Config: api.config(), Filter: defaults(t), Token: "secret", Failures: failures}, places)
			for range places {
				c, _ := dial(t, address, "GET /api HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer wrong\r\n\r\n")
				defer c.Close()
			}
			time.Sleep(100 * time.Millisecond) // in which the proxy has received the requests
			if got := send(t, address, get("/api", "localhost", "Authorization: Bearer secret")); got.status != http.StatusOK {
				t.Errorf("the right token: status %d: %s", got.status, got.body)
			}
		})
	}
}

// TestWrongTokensWait: the answer to a wrong token comes after the wait that other ways in have, so that guessing is slow. A
// client that leaves is not waited for, and one without a token gets its answer at once, as all do where the token cannot be guessed.
func TestWrongTokensWait(t *testing.T) {
	for header, want := range map[string]time.Duration{
		"Bearer secret2": gateway.FailureDelay, "Basic c2VjcmV0": gateway.FailureDelay, "secret": gateway.FailureDelay, "Bearer": gateway.FailureDelay, "": 0,
	} {
		for _, guessable := range []bool{true, false} {
			for _, patience := range []time.Duration{gateway.FailureDelay / 2, time.Hour} {
				synctest.Test(t, func(t *testing.T) {
					o := Options{Config: &rest.Config{Host: "https://api.invalid"}, Filter: defaults(t), Token: "secret"}
					if guessable {
						o.Failures = gateway.NewFailures(gateway.FailureDelay)
					}
					h, err := New(o)
					if err != nil {
						t.Fatal(err)
					}
					ctx, cancel := context.WithTimeout(t.Context(), patience)
					defer cancel()
					req, rec := httptest.NewRequest(http.MethodGet, "http://localhost/api", http.NoBody).WithContext(ctx), httptest.NewRecorder()
					if header != "" {
						req.Header.Set("Authorization", header)
					}
					want := want
					if !guessable {
						want = 0
					}
					start := time.Now()
					h.ServeHTTP(rec, req)
					if took := time.Since(start); rec.Code != http.StatusUnauthorized || took != min(want, patience) {
						t.Errorf("%q, guessable %v, client waits %v: status %d after %v", header, guessable, patience, rec.Code, took)
					}
				})
			}
		}
	}
}

// TestGuesses: a client that sends wrong tokens and does not wait for the answers gets none to further ones, not even to
// the right one, until the delay is over. Another client does not wait, nor does one without a token.
func TestGuesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, err := New(Options{Config: &rest.Config{Host: "https://api.invalid"}, Filter: defaults(t), Token: "secret", APIPrefix: "/only",
			Failures: gateway.NewFailures(gateway.FailureDelay)})
		if err != nil {
			t.Fatal(err)
		}
		send := func(client, header string) *httptest.ResponseRecorder {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			req, rec := httptest.NewRequest(http.MethodGet, "http://localhost/other", http.NoBody).WithContext(ctx), httptest.NewRecorder()
			req.RemoteAddr = client + ":7"
			if header != "" {
				req.Header.Set("Authorization", header)
			}
			h.ServeHTTP(rec, req)
			return rec
		}
		const guesser, right, wrong, accepted = "192.0.2.1", "Bearer secret", "Bearer other", http.StatusNotFound // which is outside of the prefix
		for range gateway.MaxFailures {
			if got := send(guesser, right).Code; got != accepted {
				t.Errorf("within the limit: status %d", got)
			}
			if got := send(guesser, wrong).Code; got != http.StatusUnauthorized {
				t.Errorf("a wrong token: status %d", got)
			}
		}
		for _, header := range []string{right, wrong} {
			if got := send(guesser, header); got.Code != http.StatusTooManyRequests || got.Header().Get("Retry-After") != "1" || !strings.Contains(got.Body.String(), `"TooManyRequests"`) {
				t.Errorf("%q of the guesser: status %d, %v: %s", header, got.Code, got.Header(), got.Body)
			}
		}
		if got := send(guesser, "").Code; got != http.StatusUnauthorized {
			t.Errorf("no token: status %d", got)
		}
		if got := send("192.0.2.2", right).Code; got != accepted {
			t.Errorf("another client: status %d", got)
		}
		time.Sleep(gateway.FailureDelay)
		synctest.Wait()
		if got := send(guesser, right).Code; got != accepted {
			t.Errorf("after the delay: status %d", got)
		}
	})
}
