// SPDX-License-Identifier: Apache-2.0

package tunneltest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/apiclient"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tlsreload"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
)

// tokens accepts one token.
type tokens struct{}

func (tokens) Check(_ context.Context, _, token string) (string, error) {
	if token != "good" {
		return "", apiclient.ErrBadToken
	}
	return "node1", nil
}

// TestTokens: a wrong token and another node's name are refused, counted each time and
// logged once, and the agent gets in as soon as its token is right, without a restart.
func TestTokens(t *testing.T) {
	t.Parallel()
	for _, upstreamOnly := range []bool{false, true} {
		t.Run(fmt.Sprintf("upstream=%v", upstreamOnly), func(t *testing.T) {
			said := &logs{}
			r := NewRig(t, server.Config{Tokens: tokens{}, Protocol: Only(upstreamOnly), Claims: server.Claims{By: "node"}, Logger: said.logger()})
			var mu sync.Mutex
			token := "wrong"
			crt, key := r.CA.Issue(t, "a", time.Now().Add(time.Hour))
			loader := newLoader(t, tlsreload.Files{Cert: crt, Key: key, CA: r.CA.File}, logr.Logger{})
			cfg := agent.Config{Address: r.AgentTLS, AgentID: "a", Identifiers: "host=node1", SyncInterval: 20 * time.Millisecond, SyncIntervalCap: 50 * time.Millisecond,
				TLS: func() (*tls.Config, error) {
					return loader.Client(&tls.Config{ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12}), nil
				},
				Token: func() (string, error) {
					mu.Lock()
					defer mu.Unlock()
					return token, nil
				}}
			a := agent.New(cfg, agent.NewMetrics())
			ctx, cancel := context.WithCancel(context.Background())
			done := make(chan struct{})
			go func() { a.Run(ctx); close(done) }()
			defer func() { cancel(); <-done }()
			refused := func(reason string) func() bool {
				return func() bool {
					return Metric(r.Metrics.Registry, `fairlead_tunnel_server_agents_refused_total{reason="`+reason+`"}`) >= 3
				}
			}
			Eventually(t, Patience, "refusals are counted", refused("token"))
			said.wantOneOf(t, `reason="token"`, `Refused an agent address="127.0.0.1:`, "token is not valid")
			if ok, _ := r.Server.Ready(); ok || a.Ready() {
				t.Fatal("agent with a wrong token is connected")
			}
			mu.Lock()
			token = "good"
			mu.Unlock()
			Eventually(t, Patience, "agent is accepted", func() bool { ok, _ := r.Server.Ready(); return ok })
			liar := cfg
			liar.Identifiers = "host=node2"
			b := agent.New(liar, agent.NewMetrics())
			bctx, bcancel := context.WithCancel(context.Background())
			bdone := make(chan struct{})
			go func() { b.Run(bctx); close(bdone) }()
			defer func() { bcancel(); <-bdone }()
			Eventually(t, Patience, "an agent that claims another node is refused", refused("claims"))
			said.wantOneOf(t, `reason="claims"`, `Refused an agent address="127.0.0.1:`, "node2")
			if b.Ready() {
				t.Error("an agent that claims another node is connected")
			}
		})
	}
}

// TestManyDials makes many dials with each protocol, half of them with gRPC and half with HTTP CONNECT, alongside transfers,
// and checks that all transfers are complete.
func TestManyDials(t *testing.T) { dialBesideTransfers(t, 5) }

// TestThousandsOfDials is TestManyDials with 10,000 dials for each protocol.
func TestThousandsOfDials(t *testing.T) {
	testutil.Full(t, "20,000 dials")
	testutil.Limit(t, 5*time.Minute) // they take 10 CPU seconds
	dialBesideTransfers(t, 100)
}

func dialBesideTransfers(t *testing.T, each int) {
	t.Helper()
	for _, upstreamOnly := range []bool{false, true} {
		t.Run(fmt.Sprintf("upstream %v", upstreamOnly), func(t *testing.T) {
			r := NewRig(t, server.Config{Protocol: Only(upstreamOnly)})
			r.StartAgent(agent.Config{}, "")
			addr := Target(t, Echo)
			tr := StartTraffic(t, GRPC(r.GRPC), nil)
			var wg sync.WaitGroup
			for i := range 100 {
				dial := []Dialer{Connect(r.Connect), GRPC(r.GRPC)}[i%2]
				wg.Go(func() { dialMany(t, dial, addr, each) })
			}
			wg.Wait()
			tr.Progress()
			tr.NoneCut()
			Eventually(t, Patience, "nothing is left", func() bool { return r.Server.Established() == 0 })
		})
	}
}

func dialMany(t *testing.T, dial Dialer, addr string, n int) {
	t.Helper()
	for range n {
		c, err := dial(context.Background(), addr)
		if err != nil {
			t.Errorf("dial: %v", err)
			return
		}
		_ = c.Close()
	}
}

// TestSeveralLinks: an agent holds as many links as the server wants, connections
// are spread over them, and it counts as one agent.
func TestSeveralLinks(t *testing.T) {
	r := NewRig(t, server.Config{Links: 3})
	r.StartAgent(agent.Config{}, "")
	metric := func(want string) func() bool {
		return func() bool {
			var b strings.Builder
			r.Metrics.Registry.Write(&b)
			return strings.Contains(b.String(), want)
		}
	}
	Eventually(t, Patience, "three links", metric(`fairlead_tunnel_server_links{protocol="fairlead"} 3`))
	if !metric(`konnectivity_network_proxy_server_ready_backends{proxy_strategy="default"} 1`)() {
		t.Error("links count as agents")
	}
	Run(t, Pair{Dial: Connect(r.Connect), SlowClients: true, SlowTargets: true, HalfClose: true, Failure: "502"})
}

// TestTwoServers: behind one address that leads to two servers in turn, the agent
// connects to both and to neither twice.
func TestTwoServers(t *testing.T) {
	t.Parallel()
	a := NewRig(t, server.Config{ServerID: "a", ServerCount: 2})
	b := NewRig(t, server.Config{ServerID: "b", ServerCount: 2})
	if b.CA.File == a.CA.File {
		t.Fatal("rigs share a directory")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var accepted atomic.Int64
	testutil.ServeWith(t, l, func(conns *testutil.Conns, c net.Conn) {
		to := [...]string{a.AgentTLS, a.AgentTLS, b.AgentTLS}[(accepted.Add(1)-1)%3]
		up, err := net.Dial("tcp", to)
		if err != nil {
			return
		}
		conns.Add(up)
		defer conns.Remove(up)
		go func() { _, _ = io.Copy(up, c); up.Close() }()
		_, _ = io.Copy(c, up)
	})
	ag := a.StartAgent(agent.Config{TLS: tlsOf(t, a, b)}, l.Addr().String())
	Eventually(t, Patience, "both servers are connected", func() bool { return len(ag.Servers()) == 2 && b.Server.Connected(ag.ID) })
	addr := Target(t, Echo)
	for _, r := range []*Rig{a, b} {
		MustDial(t, Connect(r.Connect), addr).Close()
	}
}

// tlsOf is for an agent of servers that have a CA each.
func tlsOf(t *testing.T, rigs ...*Rig) func() (*tls.Config, error) {
	t.Helper()
	pool := x509.NewCertPool()
	var pairs []tls.Certificate
	for _, r := range rigs {
		pem, err := os.ReadFile(r.CA.File)
		if err != nil {
			t.Fatal(err)
		}
		pool.AppendCertsFromPEM(pem)
		pair, err := tls.LoadX509KeyPair(r.CA.Issue(t, "both", time.Now().Add(time.Hour)))
		if err != nil {
			t.Fatal(err)
		}
		pairs = append(pairs, pair)
	}
	cfg := &tls.Config{ServerName: "127.0.0.1", RootCAs: pool, MinVersion: tls.VersionTLS12,
		GetClientCertificate: func(info *tls.CertificateRequestInfo) (*tls.Certificate, error) {
			for i := range pairs {
				if info.SupportsCertificate(&pairs[i]) == nil {
					return &pairs[i], nil
				}
			}
			return &tls.Certificate{}, nil
		}}
	return func() (*tls.Config, error) { return cfg, nil }
}
