// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
	"github.com/fairlead-dev/fairlead/pkg/internal/httpconnect"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/apiclient"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/state"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunneltest"
)

// reviewer is a kube-apiserver that accepts one token, as that of ServiceAccount a/b, and cannot review another one.
func reviewer(t *testing.T) *apiclient.Client {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review authenticationv1.TokenReview
		_ = json.NewDecoder(r.Body).Decode(&review)
		if review.Spec.Token == "unknown" {
			http.Error(w, "etcd is down", http.StatusInternalServerError)
			return
		}
		if review.Spec.Token == "good" {
			review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, Audiences: review.Spec.Audiences, User: authenticationv1.UserInfo{Username: "system:serviceaccount:a:b"}}
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(review)
	}))
	t.Cleanup(srv.Close)
	return apiclient.NewClient(&apiclient.Config{Host: srv.URL})
}

// statePortOf serves the state port of a rig's server and returns a client of it that has a token.
func statePortOf(t *testing.T, r *tunneltest.Rig, connect bool) func(token string) *state.Client {
	t.Helper()
	port, err := strconv.Atoi(daemontest.Ports(t, 1)[0])
	if err != nil {
		t.Fatal(err)
	}
	o := NewOptions()
	o.StatePort, o.StateServiceAccount, o.StateConnect, o.AgentBindAddress = port, "a/b", connect, "127.0.0.1"
	o.ClusterCert, o.ClusterKey = r.CA.Issue(t, "state", time.Now().Add(time.Hour))
	if err := o.serveState(t.Context(), server.NewMetrics(), &stateSource{o: o, s: r.Server}, reviewer(t)); err != nil {
		t.Fatal(err)
	}
	pem, err := os.ReadFile(r.CA.File)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	d := tls.Dialer{Config: &tls.Config{RootCAs: roots}}
	return func(token string) *state.Client {
		return &state.Client{
			Dial: func(ctx context.Context) (net.Conn, error) {
				return d.DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(o.StatePort)))
			},
			Token: func() (string, error) { return token, nil },
		}
	}
}

// TestStatePortConnects: over TLS, a client with the token opens connections through an agent that end as those of TCP do: one
// direction alone, or by a reset. Other clients cannot, and no client can without --state-connect.
func TestStatePortConnects(t *testing.T) {
	r := tunneltest.NewRig(t, server.Config{})
	r.StartAgent(agent.Config{AgentID: "one"}, "")
	target := tunneltest.Target(t, func(c net.Conn) {
		got, _ := io.ReadAll(c)
		if len(got) == 0 {
			_ = c.(*net.TCPConn).SetLinger(0)
			return
		}
		_, _ = c.Write(got)
	})
	client, to := statePortOf(t, r, true), &state.Agent{ID: "one"}
	c, err := client("good").Connect(t.Context(), target, to)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(tunneltest.Patience))
	if _, err := c.Write(make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	if err := c.(*httpconnect.Conn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(c); err != nil || len(got) != 1<<20 {
		t.Errorf("%d bytes: %v", len(got), err)
	}
	reset, err := client("good").Connect(t.Context(), target, to)
	if err != nil {
		t.Fatal(err)
	}
	defer reset.Close()
	_ = reset.SetDeadline(time.Now().Add(tunneltest.Patience))
	if err := reset.(*httpconnect.Conn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if n, err := reset.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a reset looks like an end: %d, %v", n, err)
	}
	var refused *httpconnect.RefusedError
	for _, token := range []string{"bad", ""} {
		if _, err := client(token).Connect(t.Context(), target, to); !errors.As(err, &refused) || refused.Code != http.StatusUnauthorized {
			t.Errorf("token %q: %v", token, err)
		}
	}
	if _, err := statePortOf(t, r, false)("good").Connect(t.Context(), target, to); !errors.Is(err, state.ErrNoConnect) {
		t.Errorf("without --state-connect: %v", err)
	}
}

// TestHalfClosedKeepsItsPlace: a connection whose client has ended its direction, and still reads, is counted until it has ended.
func TestHalfClosedKeepsItsPlace(t *testing.T) {
	r := tunneltest.NewRig(t, server.Config{})
	r.StartAgent(agent.Config{AgentID: "one"}, "")
	ended, release := make(chan struct{}), make(chan struct{})
	target := tunneltest.Target(t, func(c net.Conn) {
		_, _ = io.Copy(io.Discard, c)
		close(ended)
		<-release
		_, _ = c.Write([]byte("x"))
	})
	c, err := statePortOf(t, r, true)("good").Connect(t.Context(), target, &state.Agent{ID: "one"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.(*httpconnect.Conn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	<-ended
	counted := func() float64 {
		return tunneltest.Metric(r.Metrics.Registry, "konnectivity_network_proxy_server_http_connections")
	}
	time.Sleep(200 * time.Millisecond)
	if n := counted(); n != 1 {
		t.Errorf("%v connections are counted, want 1", n)
	}
	close(release)
	_ = c.SetDeadline(time.Now().Add(tunneltest.Patience))
	if got, err := io.ReadAll(c); err != nil || string(got) != "x" {
		t.Errorf("%q: %v", got, err)
	}
	tunneltest.Eventually(t, tunneltest.Patience, "the connection is counted no more", func() bool { return counted() == 0 })
}

// TestStatePortSaysWhy: the status line says why a connection is refused, because it is all that clients of CONNECT show.
func TestStatePortSaysWhy(t *testing.T) {
	r := tunneltest.NewRig(t, server.Config{})
	client := statePortOf(t, r, true)
	for token, c := range map[string]struct {
		code int
		text string
	}{
		"unknown": {http.StatusServiceUnavailable, "the token cannot be reviewed now"},
		"bad":     {http.StatusUnauthorized, "token is not valid"},
	} {
		var refused *httpconnect.RefusedError
		_, err := client(token).Connect(t.Context(), "192.0.2.1:80", &state.Agent{ID: "one"})
		if !errors.As(err, &refused) || refused.Code != c.code || !strings.Contains(refused.Status, c.text) {
			t.Errorf("token %q: %v, want %d and %q", token, err, c.code, c.text)
		}
	}
}

// TestFullStatePortSaysWhy: the answer to a connection above the limit has the kind of a limit.
func TestFullStatePortSaysWhy(t *testing.T) {
	srv := httptest.NewServer(limitConnects(http.NotFoundHandler(), 0))
	defer srv.Close()
	nc, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	var refused *httpconnect.RefusedError
	if _, err := httpconnect.Ask(t.Context(), nc, "192.0.2.1:80", nil); !errors.As(err, &refused) || !strings.HasPrefix(refused.Status, "503 limit: ") {
		t.Errorf("%v", err)
	}
}
