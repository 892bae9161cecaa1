// SPDX-License-Identifier: Apache-2.0

package apiclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func clientFor(t *testing.T, h http.HandlerFunc) *Client {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{"current-context":"c","contexts":[{"name":"c","context":{"cluster":"k","user":"u"}}],
"clusters":[{"name":"k","cluster":{"server":%q}}],"users":[{"name":"u","user":{"token":"me"}}]}`, srv.URL)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := Load(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	cfg.QPS = -1
	return NewClient(cfg)
}

// TestTokenAuth observes KON-42 of docs/requirements.md.
func TestTokenAuth(t *testing.T) {
	const good = `{"status":{"authenticated":true,"audiences":["aud"],"user":{"username":"system:serviceaccount:ns:sa"}}}`
	for name, c := range map[string]struct {
		token, answer string
		code          int
		want          error
	}{
		"good":             {"t", good, 201, nil},
		"no token":         {"", good, 201, ErrNoToken},
		"not valid":        {"t", `{"status":{"authenticated":false}}`, 201, ErrBadToken},
		"error":            {"t", `{"status":{"authenticated":true,"error":"expired"}}`, 201, ErrBadToken},
		"other audience":   {"t", strings.Replace(good, `"aud"`, `"other"`, 1), 201, ErrAudience},
		"audience unknown": {"t", strings.Replace(good, `"audiences":["aud"],`, "", 1), 201, ErrAudience},
		"other account":    {"t", strings.Replace(good, "ns:sa", "ns:other", 1), 201, ErrWrongUser},
		"other namespace":  {"t", strings.Replace(good, "ns:sa", "x:sa", 1), 201, ErrWrongUser},
		"a user":           {"t", strings.Replace(good, "system:serviceaccount:ns:sa", "admin", 1), 201, ErrWrongUser},
	} {
		t.Run(name, func(t *testing.T) {
			cl := clientFor(t, func(w http.ResponseWriter, r *http.Request) {
				var tr tokenReview
				_ = json.NewDecoder(r.Body).Decode(&tr)
				if tr.Spec.Token != c.token || len(tr.Spec.Audiences) != 1 || tr.Spec.Audiences[0] != "aud" || r.Header.Get("Authorization") != "Bearer me" {
					t.Errorf("request %+v", tr)
				}
				w.WriteHeader(c.code)
				_, _ = w.Write([]byte(c.answer))
			})
			a := &TokenAuth{Client: cl, Namespace: "ns", ServiceAccount: "sa", Audience: "aud"}
			if _, err := a.Check(context.Background(), "", c.token); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
}

func TestTokenAuthFailures(t *testing.T) {
	forbidden := clientFor(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte(`{"reason":"Forbidden","message":"no"}`))
	})
	_, err := (&TokenAuth{Client: forbidden, Audience: "a"}).Check(context.Background(), "", "t")
	if code, reason, ok := CodeOf(err); !ok || code != http.StatusForbidden || reason != "Forbidden" {
		t.Errorf("got %v", err)
	}
	stop := make(chan struct{})
	slow := clientFor(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-stop:
		case <-r.Context().Done():
		}
	})
	defer close(stop)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := (&TokenAuth{Client: slow, Audience: "a"}).Check(ctx, "", "t"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("slow API server: %v", err)
	}
}

func TestTokenCache(t *testing.T) {
	var n atomic.Int32
	cl := clientFor(t, func(w http.ResponseWriter, _ *http.Request) {
		n.Add(1)
		_, _ = w.Write([]byte(`{"status":{"authenticated":true,"audiences":["aud"],"user":{"username":"system:serviceaccount:ns:sa","extra":{"authentication.kubernetes.io/node-name":["n1"],"authentication.kubernetes.io/pod-name":["p1"]}}}}`))
	})
	a := &TokenAuth{Client: cl, Namespace: "ns", ServiceAccount: "sa", Audience: "aud", Keep: time.Hour}
	for range 10 {
		if node, err := a.Check(context.Background(), "", "t"); err != nil || node != "n1" {
			t.Fatal(node, err)
		}
		if node, pod, err := a.CheckPod(context.Background(), "", "t"); err != nil || node != "n1" || pod != "p1" {
			t.Fatal(node, pod, err)
		}
	}
	if n.Load() != 1 {
		t.Errorf("%d reviews for 20 checks", n.Load())
	}
	a.mu.Lock()
	for k, seen := range a.seen { // an hour passes
		seen.until = seen.until.Add(-a.Keep)
		a.seen[k] = seen
	}
	a.mu.Unlock()
	_, _ = a.Check(context.Background(), "", "t")
	if n.Load() != 2 {
		t.Error("an old answer is used")
	}
}

// TestAcceptedHostIsKnown: a host is known from the first of its tokens that the API server
// accepts, and a token that it refuses makes no host known.
func TestAcceptedHostIsKnown(t *testing.T) {
	cl := clientFor(t, func(w http.ResponseWriter, r *http.Request) {
		var tr tokenReview
		_ = json.NewDecoder(r.Body).Decode(&tr)
		fmt.Fprintf(w, `{"status":{"authenticated":%v,"audiences":["aud"],"user":{"username":"system:serviceaccount:ns:sa"}}}`, tr.Spec.Token == "good")
	})
	a := &TokenAuth{Client: cl, Namespace: "ns", ServiceAccount: "sa", Audience: "aud"}
	const host, other = "192.0.2.1:1", "192.0.2.2:1"
	if _, err := a.Check(t.Context(), host, "good"); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Check(t.Context(), other, "bad"); !errors.Is(err, ErrBadToken) {
		t.Fatal(err)
	}
	if !cl.known.has(host) || cl.known.has(other) {
		t.Errorf("known: %v with an accepted token, %v with a refused one", cl.known.has(host), cl.known.has(other))
	}
}

// TestRefusedTokenCache: a token that is refused is not reviewed again at once, and is a
// little later. What is no answer is not remembered.
func TestRefusedTokenCache(t *testing.T) {
	var n atomic.Int32
	var broken atomic.Bool
	cl := clientFor(t, func(w http.ResponseWriter, _ *http.Request) {
		n.Add(1)
		if broken.Load() {
			w.WriteHeader(http.StatusInternalServerError)
		}
		_, _ = w.Write([]byte(`{"status":{"authenticated":false}}`))
	})
	a := &TokenAuth{Client: cl, Namespace: "ns", ServiceAccount: "sa", Audience: "aud", Keep: time.Hour}
	check := func(token string, want error, reviews int32) {
		t.Helper()
		if _, err := a.Check(t.Context(), "", token); err == nil || errors.Is(err, ErrBadToken) != (want != nil) {
			t.Errorf("%s: %v, want %v", token, err, want)
		}
		if n.Load() != reviews {
			t.Errorf("%d reviews, want %d", n.Load(), reviews)
		}
	}
	for range 5 {
		check("bad", ErrBadToken, 1)
	}
	check("another", ErrBadToken, 2)
	broken.Store(true)
	check("unlucky", nil, 3)
	check("unlucky", nil, 4)
	broken.Store(false)
	later := func(d time.Duration) {
		a.mu.Lock()
		defer a.mu.Unlock()
		for k, seen := range a.seen {
			seen.until = seen.until.Add(-d)
			a.seen[k] = seen
		}
	}
	reviews := int32(4)
	for kept := refusedFirst; kept < 4*refusedMost; kept *= 2 { // twice as long each time
		later(min(kept, refusedMost) - 100*time.Millisecond)
		check("bad", ErrBadToken, reviews)
		later(100 * time.Millisecond)
		reviews++
		check("bad", ErrBadToken, reviews)
	}
	later(2 * time.Minute)
	check("another", ErrBadToken, reviews+1)
	if a.Keep = 0; len(a.seen) != 1 {
		t.Errorf("%d refused tokens are known after two minutes, want that of now", len(a.seen))
	}
	check("fresh", ErrBadToken, reviews+2)
	check("fresh", ErrBadToken, reviews+3)
}

// TestAcceptedTokenStays: a review that ends later and refuses does not take back what
// another has accepted.
func TestAcceptedTokenStays(t *testing.T) {
	a := &TokenAuth{Keep: time.Hour}
	a.remember([32]byte{1}, seenToken{bound: bound{node: "n"}})
	a.rememberRefused([32]byte{1}, ErrBadToken)
	if s, ok := a.fresh([32]byte{1}); !ok || s.err != nil || s.node != "n" {
		t.Errorf("it is known as %+v, %v", s, ok)
	}
}

// TestLeaseBesideHang: an API server that takes a call and does not answer keeps a Lease
// from being renewed for the time of that call alone.
func TestLeaseBesideHang(t *testing.T) {
	var hung atomic.Bool
	hung.Store(true)
	cl := clientFor(t, func(w http.ResponseWriter, r *http.Request) {
		if hung.Swap(false) {
			<-r.Context().Done()
			return
		}
		_, _ = w.Write([]byte("{}"))
	})
	ls := &Leases{Client: cl, Namespace: "ns", Timeout: 100 * time.Millisecond}
	if err := ls.Hold(t.Context(), "l", "x", time.Minute); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a call that hangs: %v", err)
	}
	if err := ls.Hold(t.Context(), "l", "x", time.Minute); err != nil {
		t.Errorf("the next one: %v", err)
	}
}

// TestSilentWatch: a watch that shows nothing of a Lease that must be renewed is made
// again, so that servers are counted that came meanwhile.
func TestSilentWatch(t *testing.T) {
	var lists, watches atomic.Int32
	lease := func(name string) Lease {
		now, seconds := &MicroTime{time.Now()}, int32(60)
		return Lease{Metadata: Meta{Name: name}, Spec: LeaseSpec{HolderIdentity: &name, LeaseDurationSeconds: &seconds, RenewTime: now}}
	}
	cl := clientFor(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") != "" {
			watches.Add(1)
			w.WriteHeader(http.StatusOK)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return
		}
		list := leaseList{Items: []Lease{lease("a")}}
		if lists.Add(1) > 1 {
			list.Items = append(list.Items, lease("b"))
		}
		_ = json.NewEncoder(w).Encode(list)
	})
	c := &Counter{Leases: &Leases{Client: cl, Namespace: "ns"}, Silence: 200 * time.Millisecond}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); c.Run(ctx) }()
	for start := time.Now(); c.Count() != 2; time.Sleep(10 * time.Millisecond) {
		if time.Since(start) > 8*time.Second { // less than the pause behind an ordinary end
			t.Fatalf("counts %d after %d lists and %d watches", c.Count(), lists.Load(), watches.Load())
		}
	}
	cancel()
	<-done
}

func TestLeases(t *testing.T) {
	store := map[string]Lease{}
	cl := clientFor(t, func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"), "/")
		var l Lease
		switch r.Method {
		case http.MethodPost, http.MethodPut:
			if err := json.NewDecoder(r.Body).Decode(&l); err != nil {
				t.Error(err)
			}
			store[l.Metadata.Name] = l
		case http.MethodDelete:
			delete(store, name)
		case http.MethodGet:
			if name == "" {
				var list leaseList
				for _, l := range store {
					list.Items = append(list.Items, l)
				}
				if r.URL.Query().Get("labelSelector") != "a=b,c=d" {
					t.Errorf("selector %q", r.URL.RawQuery)
				}
				_ = json.NewEncoder(w).Encode(list)
				return
			}
			var ok bool
			if l, ok = store[name]; !ok {
				w.WriteHeader(http.StatusNotFound)
				return
			}
		}
		_ = json.NewEncoder(w).Encode(l)
	})
	ls := &Leases{Client: cl, Namespace: "kube-system", Labels: map[string]string{"c": "d", "a": "b"}}
	ctx := context.Background()
	for range 2 { // makes it, then renews it
		if err := ls.Hold(ctx, "konnectivity-proxy-server-x", "x", 30*time.Second); err != nil {
			t.Fatal(err)
		}
	}
	items, _, err := ls.List(ctx)
	if err != nil || len(items) != 1 || !items[0].valid(time.Now()) || items[0].valid(time.Now().Add(time.Minute)) || *items[0].Spec.HolderIdentity != "x" {
		t.Errorf("got %+v, %v", items, err)
	}
	if err := ls.Delete(ctx, "konnectivity-proxy-server-x", ""); err != nil || len(store) != 0 {
		t.Errorf("delete: %v, %d left", err, len(store))
	}
}

func TestRate(t *testing.T) {
	c := &Client{cfg: Config{QPS: 100, Burst: 5}}
	start := time.Now()
	for range 15 {
		if err := c.wait(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	if d := time.Since(start); d < 80*time.Millisecond {
		t.Errorf("15 requests at 100 per second with a burst of 5 took only %v", d)
	}
}
