// SPDX-License-Identifier: Apache-2.0

package dial

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"

	tunnelv1alpha1 "github.com/fairlead-dev/fairlead/pkg/apis/tunnel/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/gateway"
	"github.com/fairlead-dev/fairlead/pkg/internal/wsconn"
)

// tunnelAPIServer imitates the tunnel's API behind kube-apiserver: a list of agents, and connections that come back.
type tunnelAPIServer struct {
	t      *testing.T
	mu     sync.Mutex
	agents []tunnelv1alpha1.TunnelAgent
	asked  []string // "AGENT HOST:PORT" of each request for a connection
	header []http.Header
	// refuse answers a request for a connection, if it does not return nil.
	refuse func(agent string) *metav1.Status
}

func (s *tunnelAPIServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	path, ok := strings.CutPrefix(r.URL.Path, "/apis/tunnel.fairlead.dev/v1alpha1/tunnelagents")
	q := r.URL.Query()
	s.header = append(s.header, r.Header.Clone())
	switch {
	case !ok:
		http.NotFound(w, r)
		return
	case path == "":
		s.list(w, q.Get("fieldSelector"))
		return
	}
	agent := strings.TrimSuffix(strings.TrimPrefix(path, "/"), "/portforward")
	s.asked = append(s.asked, agent+" "+q.Get("host")+" "+q.Get("port"))
	if s.refuse != nil {
		if status := s.refuse(agent); status != nil {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(int(status.Code))
			_ = json.NewEncoder(w).Encode(status)
			return
		}
	}
	u := websocket.Upgrader{Subprotocols: []string{wsconn.Protocol}}
	ws, err := u.Upgrade(w, r, nil)
	if err != nil {
		s.t.Error(err)
		return
	}
	c := wsconn.New(ws)
	go func() {
		_, _ = io.Copy(c, c)
		_ = c.CloseWrite()
		_ = c.Close()
	}()
}

func (s *tunnelAPIServer) list(w http.ResponseWriter, selector string) {
	list := tunnelv1alpha1.TunnelAgentList{}
	selects, err := fields.ParseSelector(selector)
	if err != nil {
		s.t.Error(err)
		return
	}
	for _, a := range s.agents {
		if selects.Matches(fields.Set{tunnelv1alpha1.FieldDraining: "false", tunnelv1alpha1.FieldNodeName: a.Status.NodeName}) {
			list.Items = append(list.Items, a)
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(list)
}

func anAgent(name, node string, connected metav1.ConditionStatus) tunnelv1alpha1.TunnelAgent {
	return tunnelv1alpha1.TunnelAgent{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: tunnelv1alpha1.TunnelAgentStatus{AgentID: name, NodeName: node,
		Conditions: []metav1.Condition{{Type: tunnelv1alpha1.ConditionConnected, Status: connected}}}}
}

func newTunnelAPI(t *testing.T, o Options, agents ...tunnelv1alpha1.TunnelAgent) (*tunnelAPIServer, Dialer) {
	t.Helper()
	s := &tunnelAPIServer{t: t, agents: agents}
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	o.Config = &rest.Config{Host: srv.URL, Impersonate: rest.ImpersonationConfig{UserName: "alice"}, BearerToken: "secret"}
	d, err := New(ViaAPI, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return s, d
}

// TestAPI: a connection goes through an agent of the destination's node, with the credentials and the impersonation of the
// kubeconfig. Both directions carry bytes and end by themselves.
func TestAPI(t *testing.T) {
	t.Parallel()
	s, d := newTunnelAPI(t, Options{}, anAgent("gone", "n1", metav1.ConditionFalse), anAgent("a1", "n1", metav1.ConditionTrue), anAgent("a2", "n2", metav1.ConditionTrue))
	for _, c := range []struct {
		to   gateway.Destination
		want string
	}{
		{gateway.Destination{Host: "web", Port: 80, Kind: gateway.KindService, Namespace: "ns", Name: "web", Node: "n1"}, "a1 web.ns.svc 80"},
		{gateway.Destination{Host: "web.ns", Port: 80, Kind: gateway.KindService, Namespace: "ns", Name: "web", Node: "n2"}, "a2 web.ns 80"},
		{gateway.Destination{Host: "10.0.0.1", Port: 80, Kind: gateway.KindPod, Namespace: "ns", Name: "p", Node: "n1", Addr: netip.MustParseAddrPort("10.0.0.1:80")}, "a1 10.0.0.1 80"},
		{gateway.Destination{Host: "example.org", Port: 443, Kind: gateway.KindExternal}, " example.org. 443"},
	} {
		conn, err := d.Dial(t.Context(), c.to)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		if _, err := conn.Write(make([]byte, 1<<20)); err != nil {
			t.Fatal(err)
		}
		if err := conn.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(conn); err != nil || len(got) != 1<<20 {
			t.Errorf("%d bytes: %v", len(got), err)
		}
		_ = conn.Close()
		s.mu.Lock()
		if got := s.asked[len(s.asked)-1]; !strings.HasSuffix(got, c.want) {
			t.Errorf("asked for %q, want %q", got, c.want)
		}
		for _, h := range s.header {
			if h.Get("Impersonate-User") != "alice" || h.Get("Authorization") != "Bearer secret" {
				t.Errorf("headers %v", h)
			}
		}
		s.mu.Unlock()
	}
}

// TestAPIByAddress: where the proxy judges destinations, the API gets the address that was judged.
func TestAPIByAddress(t *testing.T) {
	t.Parallel()
	s, d := newTunnelAPI(t, Options{API: APIOptions{ByAddress: true}}, anAgent("a1", "n1", metav1.ConditionTrue))
	to := gateway.Destination{Host: "web.ns", Port: 80, Kind: gateway.KindService, Namespace: "ns", Name: "web", Addr: netip.MustParseAddrPort("10.0.0.1:8080")}
	conn, err := d.Dial(t.Context(), to)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	if s.asked[0] != "a1 10.0.0.1 8080" {
		t.Errorf("asked for %q", s.asked)
	}
}

// TestAPIAgentGone: if an agent goes, another one is tried, and none twice.
func TestAPIAgentGone(t *testing.T) {
	t.Parallel()
	s, d := newTunnelAPI(t, Options{}, anAgent("a1", "n1", metav1.ConditionTrue), anAgent("a2", "n2", metav1.ConditionTrue))
	missing := func(agent string) *metav1.Status {
		return &metav1.Status{Status: metav1.StatusFailure, Code: 404, Reason: metav1.StatusReasonNotFound, Message: `tunnelagents.tunnel.fairlead.dev "` + agent + `" not found`}
	}
	s.refuse = func(agent string) *metav1.Status {
		if agent == "a1" {
			return missing(agent)
		}
		return nil
	}
	to := gateway.Destination{Host: "web.ns", Port: 80, Kind: gateway.KindService, Namespace: "ns", Name: "web", Node: "n1"}
	conn, err := d.Dial(t.Context(), to)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	s.mu.Lock()
	s.refuse, s.asked = missing, nil
	s.mu.Unlock()
	if _, err := d.Dial(t.Context(), to); gateway.ReasonOf(err) != gateway.ReasonPathDown || len(s.asked) != 2 {
		t.Errorf("%v after %q", err, s.asked)
	}
}

// TestAPIRefusals: each refusal has its reason, that of the tunnel's API first.
func TestAPIRefusals(t *testing.T) {
	t.Parallel()
	cause := func(code int32, reason gateway.Reason) *metav1.Status {
		return &metav1.Status{Status: metav1.StatusFailure, Code: code, Message: "because", Details: &metav1.StatusDetails{
			Causes: []metav1.StatusCause{{Type: metav1.CauseType(reason), Field: tunnelv1alpha1.ConnectCauseField, Message: "because"}}}}
	}
	for name, c := range map[string]struct {
		status *metav1.Status
		want   gateway.Reason
		text   string
	}{
		"refused":      {cause(502, gateway.ReasonRefused), gateway.ReasonRefused, "because"},
		"not found":    {cause(404, gateway.ReasonNotFound), gateway.ReasonNotFound, "because"},
		"timeout":      {cause(504, gateway.ReasonTimeout), gateway.ReasonTimeout, "because"},
		"denied":       {cause(403, gateway.ReasonDenied), gateway.ReasonDenied, "because"},
		"RBAC":         {&metav1.Status{Status: metav1.StatusFailure, Code: 403, Reason: metav1.StatusReasonForbidden, Message: "no"}, gateway.ReasonDenied, "fairlead-tunnel-connect"},
		"too many":     {&metav1.Status{Status: metav1.StatusFailure, Code: 429, Reason: metav1.StatusReasonTooManyRequests, Message: "no"}, gateway.ReasonBusy, "later"},
		"off":          {&metav1.Status{Status: metav1.StatusFailure, Code: 404, Reason: metav1.StatusReasonNotFound, Message: "the server could not find the requested resource"}, gateway.ReasonPathDown, "tunnelAPI.connect"},
		"unavailable":  {&metav1.Status{Status: metav1.StatusFailure, Code: 503, Reason: metav1.StatusReasonServiceUnavailable, Message: "no"}, gateway.ReasonPathDown, "kubectl get apiservice"},
		"unauthorized": {&metav1.Status{Status: metav1.StatusFailure, Code: 401, Reason: metav1.StatusReasonUnauthorized, Message: "no"}, gateway.ReasonPathDown, "credentials"},
	} {
		t.Run(name, func(t *testing.T) {
			s, d := newTunnelAPI(t, Options{}, anAgent("agent-one", "n1", metav1.ConditionTrue))
			s.refuse = func(string) *metav1.Status { return c.status }
			_, err := d.Dial(t.Context(), gateway.Destination{Host: "10.0.0.1", Port: 80, Kind: gateway.KindPod, Addr: netip.MustParseAddrPort("10.0.0.1:80")})
			if gateway.ReasonOf(err) != c.want || !strings.Contains(err.Error(), c.text) {
				t.Errorf("reason %q, want %q: %v", gateway.ReasonOf(err), c.want, err)
			}
		})
	}
	_, d := newTunnelAPI(t, Options{}, anAgent("gone", "n1", metav1.ConditionFalse))
	if _, err := d.Dial(t.Context(), gateway.Destination{Host: "10.0.0.1", Port: 80, Kind: gateway.KindPod}); gateway.ReasonOf(err) != gateway.ReasonPathDown || !strings.Contains(err.Error(), "no agent") {
		t.Errorf("without an agent: %v", err)
	}
}

// TestAPIBroken: a connection that breaks is an error of the reader, and not an orderly end.
func TestAPIBroken(t *testing.T) {
	t.Parallel()
	broke := make(chan *websocket.Conn, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/portforward") {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(tunnelv1alpha1.TunnelAgentList{Items: []tunnelv1alpha1.TunnelAgent{anAgent("a1", "", metav1.ConditionTrue)}})
			return
		}
		u := websocket.Upgrader{Subprotocols: []string{wsconn.Protocol}}
		ws, err := u.Upgrade(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		broke <- ws
	}))
	t.Cleanup(srv.Close)
	d, err := New(ViaAPI, Options{Config: &rest.Config{Host: srv.URL}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	c, err := d.Dial(t.Context(), gateway.Destination{Host: "10.0.0.1", Port: 80, Kind: gateway.KindPod})
	if err != nil {
		t.Fatal(err)
	}
	ws := <-broke
	if err := ws.WriteMessage(websocket.BinaryMessage, []byte("half")); err != nil {
		t.Fatal(err)
	}
	_ = ws.NetConn().Close()
	_ = c.SetReadDeadline(time.Now().Add(time.Minute))
	if got, err := io.ReadAll(c); !errors.Is(err, wsconn.ErrReset) || string(got) != "half" {
		t.Errorf("%q, %v", got, err)
	}
}
