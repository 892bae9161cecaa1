// SPDX-License-Identifier: Apache-2.0

package connect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/fairlead-dev/fairlead/pkg/apis/tunnel/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/gateway"
	"github.com/fairlead-dev/fairlead/pkg/internal/wsconn"
)

// world is the handler behind an HTTP server, with a real TCP destination that is the one endpoint of Service web/svc.
type world struct {
	t       *testing.T
	h       *Handler
	url     string
	rights  map[string]bool // "VERB RESOURCE/SUBRESOURCE NAMESPACE NAME"
	target  string
	dialErr error
	askErr  error                              // of questions for rights that no rule in rights answers
	audit   atomic.Pointer[audit.AuditContext] // of the last request
}

// Resolve implements gateway.Resolver. Literal addresses are hosts outside of the cluster.
func (w *world) Resolve(ctx context.Context, host string, port uint16) (gateway.Destination, error) {
	d := gateway.Destination{Host: host, Port: port, Kind: gateway.KindExternal}
	if addr, err := netip.ParseAddr(host); err == nil {
		d.Addr = netip.AddrPortFrom(addr, port)
		return d, nil
	}
	d.Kind, d.Namespace, d.Name = gateway.KindService, "web", strings.TrimSuffix(host, ".web.svc")
	if err := gateway.CheckName(ctx, d); err != nil {
		return d, err
	}
	if host != "svc.web.svc" {
		return d, gateway.Errorf(gateway.ReasonNotFound, "", "no name %s", host)
	}
	d.Addr = netip.MustParseAddrPort("192.0.2.1:8080")
	return d, nil
}

// Authorize implements authorizer.Authorizer.
func (w *world) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if w.rights[fmt.Sprintf("%s %s/%s %s %s", a.GetVerb(), a.GetResource(), a.GetSubresource(), a.GetNamespace(), a.GetName())] {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", w.askErr
}

type responder struct{ w http.ResponseWriter }

func (r responder) Object(int, runtime.Object) { panic("not used") }

func (r responder) Error(err error) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		http.Error(r.w, err.Error(), http.StatusInternalServerError)
		return
	}
	r.w.WriteHeader(int(status.Status().Code))
	_ = json.NewEncoder(r.w).Encode(status.Status())
}

// newWorld serves with a destination that f is.
func newWorld(t *testing.T, f func(net.Conn), change func(*Config), rights ...string) *world {
	t.Helper()
	w := &world{t: t, rights: map[string]bool{}, target: listen(t, f)}
	for _, r := range rights {
		w.rights[r] = true
	}
	d, err := NewDestinations(w)
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{
		Resolver: w, Destinations: d, Create: w, DialTimeout: patience, PingInterval: time.Second, MaxConnections: 100, MaxPerUser: 100,
		Dial: func(ctx context.Context, agent *v1alpha1.TunnelAgent, address string) (net.Conn, error) {
			if agent.Name != "a1" || address != "192.0.2.1:8080" {
				return nil, fmt.Errorf("dial of %s through %s", address, agent.Name)
			}
			if w.dialErr != nil {
				return nil, w.dialErr
			}
			return new(net.Dialer).DialContext(ctx, "tcp", w.target)
		},
	}
	if change != nil {
		change(&cfg)
	}
	w.h = New(cfg)
	srv := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		q := req.URL.Query()
		port, _ := strconv.Atoi(q.Get("port"))
		o := &v1alpha1.TunnelAgentConnectOptions{Host: q.Get("host"), Port: int32(port)}
		ctx := audit.WithAuditContext(request.WithUser(req.Context(), &user.DefaultInfo{Name: q.Get("user")}))
		w.audit.Store(audit.AuditContextFrom(ctx))
		w.h.Serve(&v1alpha1.TunnelAgent{ObjectMeta: metav1.ObjectMeta{Name: "a1"}}, o, responder{rw}).ServeHTTP(rw, req.WithContext(ctx))
	}))
	t.Cleanup(srv.Close)
	w.url = srv.URL
	return w
}

func listen(t *testing.T, f func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				f(c)
			}()
		}
	}()
	return l.Addr().String()
}

func echo(c net.Conn) { _, _ = io.Copy(c, c) }

// dial opens a connection as a user. A refusal is returned as its status.
func (w *world) dial(user, host string, port int) (*wsconn.Conn, *metav1.Status) {
	w.t.Helper()
	return w.dialWith(user, host, port, nil)
}

func (w *world) dialWith(user, host string, port int, header http.Header) (*wsconn.Conn, *metav1.Status) {
	w.t.Helper()
	q := url.Values{"user": {user}, "host": {host}, "port": {strconv.Itoa(port)}}
	d := websocket.Dialer{Subprotocols: []string{wsconn.Protocol}}
	ws, resp, err := d.Dial("ws"+strings.TrimPrefix(w.url, "http")+"?"+q.Encode(), header)
	if err == nil {
		_ = resp.Body.Close()
		w.t.Cleanup(func() { _ = ws.Close() })
		_ = ws.NetConn().SetDeadline(time.Now().Add(patience))
		return wsconn.New(ws), nil
	}
	if resp == nil {
		w.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var s metav1.Status
	if err := json.NewDecoder(resp.Body).Decode(&s); err != nil {
		w.t.Fatalf("%s: %v", resp.Status, err)
	}
	return nil, &s
}

func (w *world) must() *wsconn.Conn {
	w.t.Helper()
	c, refusal := w.dial("alice", "svc.web.svc", 80)
	if refusal != nil {
		w.t.Fatalf("%+v", refusal)
	}
	return c
}
