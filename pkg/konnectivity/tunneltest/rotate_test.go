// SPDX-License-Identifier: Apache-2.0

package tunneltest

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/apiclient"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/link"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
)

// TestRotationUnderLoad renews the CA with an overlap, then the certificates of both
// sides and of the frontends, then drops the old CA, while connections are made and bytes
// are moved all the time and agents reconnect after each step. Nothing fails, every
// transfer is whole, and nothing restarts (upstream #801).
func TestRotationUnderLoad(t *testing.T) {
	t.Parallel()
	r := NewRig(t, server.Config{AgentWait: Patience})
	p := NewProxy(t, r.AgentTLS)
	r.StartAgent(agent.Config{AgentID: "stays"}, "")
	a := r.StartAgent(agent.Config{AgentID: "reconnects"}, p.Addr)
	grpcTLS, connectTLS := r.FrontendsTLS()
	client := r.rotatingClient()
	load := StartLoad(t, Connect(r.Connect), Target(t, Echo), 20)
	moves := []*Traffic{
		StartTraffic(t, Connect(r.Connect), nil),
		StartTraffic(t, client(ConnectTLS, connectTLS), nil),
		StartTraffic(t, client(GRPCTLS, grpcTLS), nil),
	}
	reconnect := func(step string) {
		t.Helper()
		for _, tr := range moves {
			tr.Progress()
		}
		p.Refuse(true) // what is on the way goes on through the other agent
		a.Drain(t.Context())
		p.Refuse(false)
		a.Stop()
		a = r.StartAgent(agent.Config{AgentID: "reconnects"}, p.Addr)
		t.Log(step)
	}
	oldDir, newDir := ShortDir(t), ShortDir(t)
	old := *r.CA
	old.File = filepath.Join(oldDir, "ca.crt") // r.CA.File is what both sides trust
	pem, err := os.ReadFile(r.CA.File)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(old.File, pem, 0o600); err != nil {
		t.Fatal(err)
	}
	next := NewCA(t, newDir)
	r.trust(&old, next)
	reconnect("both CAs are trusted")
	next.Dir = r.CA.Dir
	next.Issue(t, "server", time.Now().Add(time.Hour))
	reconnect("the server has a certificate of the new CA")
	next.Issue(t, "agent", time.Now().Add(time.Hour))
	reconnect("agents have certificates of the new CA")
	next.Issue(t, "frontend", time.Now().Add(time.Hour))
	next.Issue(t, "client", time.Now().Add(time.Hour))
	reconnect("so have the frontends and their clients")
	oldCert, err := tls.LoadX509KeyPair(old.Issue(t, "former", time.Now().Add(time.Hour)))
	if err != nil {
		t.Fatal(err)
	}
	r.trust(next)
	reconnect("only the new CA is trusted")
	for _, addr := range []string{r.AgentTLS, grpcTLS, connectTLS} {
		rotated(t, addr, next, oldCert)
	}
	load.NoneFailed(t)
	for _, tr := range moves {
		tr.NoneCut()
	}
}

// trust has both sides trust these CAs and no other.
func (r *Rig) trust(cas ...*CA) {
	r.t.Helper()
	var all []byte
	for _, ca := range cas {
		pem, err := os.ReadFile(ca.File)
		if err != nil {
			r.t.Fatal(err)
		}
		all = append(all, pem...)
	}
	if err := os.WriteFile(r.CA.File+".new", all, 0o600); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Rename(r.CA.File+".new", r.CA.File); err != nil {
		r.t.Fatal(err)
	}
}

// rotated wants a listener to show a certificate of the CA, and to refuse one of a former
// CA.
func rotated(t *testing.T, addr string, ca *CA, former tls.Certificate) {
	t.Helper()
	protos := []string{"h2", link.ALPN}
	nc, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{former}, NextProtos: protos}) //nolint:gosec // the certificate is looked at below
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = nc.Close() }()
	if err := nc.ConnectionState().PeerCertificates[0].CheckSignatureFrom(ca.cert); err != nil {
		t.Errorf("%s: the certificate is not of the new CA: %v", addr, err)
	}
	_ = nc.SetReadDeadline(time.Now().Add(10 * time.Second))
	var refused *net.OpError
	for err = nil; err == nil; { // an HTTP/2 server speaks before it has seen the certificate
		_, err = nc.Read(make([]byte, 100))
	}
	if !errors.As(err, &refused) || refused.Op != "remote error" {
		t.Errorf("%s: a certificate of the former CA is not refused: %v", addr, err)
	}
}

// rotatingClient returns dialers over TCP whose certificate, key and CA are those that
// are in the files at present.
func (r *Rig) rotatingClient() func(with func(string, *tls.Config) Dialer, proxy string) Dialer {
	r.t.Helper()
	loader := r.loader("client")
	return func(with func(string, *tls.Config) Dialer, proxy string) Dialer {
		return func(ctx context.Context, address string) (net.Conn, error) {
			return with(proxy, loader.Client(&tls.Config{ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12}))(ctx, address)
		}
	}
}

// reviewer is the part of an API server that reviews tokens, well or badly.
type reviewer struct {
	delay  atomic.Int64
	status atomic.Int64
	count  atomic.Int64
	good   atomic.Value // the token that is accepted
}

func (v *reviewer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v.count.Add(1)
	select {
	case <-time.After(time.Duration(v.delay.Load())):
	case <-r.Context().Done():
		return
	}
	if s := v.status.Load(); s != 0 {
		w.WriteHeader(int(s))
		return
	}
	var tr struct {
		Spec struct {
			Token string `json:"token"`
		} `json:"spec"`
	}
	_ = json.NewDecoder(r.Body).Decode(&tr)
	fmt.Fprintf(w, `{"status":{"authenticated":%v,"audiences":["aud"],"user":{"username":"system:serviceaccount:ns:sa"}}}`, tr.Spec.Token == v.good.Load())
}

// reviewsPerSecond is the default of --kubeconfig-qps.
const reviewsPerSecond = 5

// startReviewer returns a reviewer and a checker that asks it.
func startReviewer(t *testing.T, qps float32) (*reviewer, *apiclient.TokenAuth) {
	t.Helper()
	v := &reviewer{}
	v.good.Store("good")
	srv := httptest.NewServer(v)
	t.Cleanup(srv.Close)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{"current-context":"c","contexts":[{"name":"c","context":{"cluster":"k"}}],"clusters":[{"name":"k","cluster":{"server":%q}}]}`, srv.URL)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := apiclient.Load(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	cfg.QPS = qps
	client := apiclient.NewClient(cfg)
	t.Cleanup(client.CloseIdle)
	return v, &apiclient.TokenAuth{Client: client, Namespace: "ns", ServiceAccount: "sa", Audience: "aud"}
}

// TestReviewSlowOrFailing: while the API server is slow with TokenReviews or fails
// them, agents that are connected carry on, with transfers that are all whole, agents
// that are not do not ask more often than --kubeconfig-qps, and get in as soon as it is
// well again.
func TestReviewSlowOrFailing(t *testing.T) {
	t.Parallel()
	for name, ill := range map[string]func(v *reviewer){
		"slow":   func(v *reviewer) { v.delay.Store(int64(3 * time.Second)) },
		"failed": func(v *reviewer) { v.status.Store(http.StatusInternalServerError) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, tokens := startReviewer(t, reviewsPerSecond)
			r := NewRig(t, server.Config{Tokens: tokens})
			token := func() (string, error) { return "good", nil }
			r.StartAgent(agent.Config{Token: token}, "")
			load, tr := StartLoad(t, Connect(r.Connect), Target(t, Echo), 50), StartTraffic(t, GRPC(r.GRPC), nil)
			ill(v)
			v.count.Store(0)
			start := time.Now()
			const late = 20
			for i := range late {
				r.LaunchAgent(agent.Config{AgentID: fmt.Sprint("late-", i), Token: token, SyncInterval: 50 * time.Millisecond, SyncIntervalCap: time.Second}, "")
			}
			time.Sleep(2 * time.Second) // in which agents that ask as often as they can ask about 100 times
			if most := 10 + reviewsPerSecond*time.Since(start).Seconds() + 1; float64(v.count.Load()) > most {
				t.Errorf("%d reviews in %v, want at most %.0f", v.count.Load(), time.Since(start), most)
			}
			tr.Progress()
			v.delay.Store(0)
			v.status.Store(0)
			Eventually(t, Patience, "all agents are in", func() bool {
				return Metric(r.Metrics.Registry, `fairlead_tunnel_server_links{protocol="fairlead"}`) == late+1
			})
			tr.Progress()
			load.NoneFailed(t)
			tr.NoneCut()
		})
	}
}
