// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// Each tunnel check passes against a stub in which everything works, and fails when the one thing that it checks is broken.
func TestTunnelChecks(t *testing.T) {
	noTunnel := func(a *stubAPI) { a.tunneled = false }
	noEgress := func(a *stubAPI) { a.tunneled, a.egress = false, false }
	noAgent := func(a *stubAPI) { a.callError = "No agent available" }
	tests := []struct {
		name    string
		run     func(context.Context, *Scope) error
		broken  func(*stubAPI)
		wantErr string
	}{
		{"logs", tunnelLogs, nil, ""},
		{"logs direct", tunnelLogs, noTunnel, "not through the tunnel"},
		{"logs without egress selector", tunnelLogs, noEgress, "API server has no"},
		{"logs empty", tunnelLogs, func(a *stubAPI) { a.log = "\n" }, "the log is empty"},
		{"logs without agent", tunnelLogs, noAgent, "No agent available"},
		{"exec", tunnelExec, nil, ""},
		{"exec direct", tunnelExec, noTunnel, "not through the tunnel"},
		{"exec damaged", tunnelExec, func(a *stubAPI) { a.corruptExec = true }, "got 65536 different bytes"},
		{"exec without agent", tunnelExec, noAgent, "No agent available"},
		{"port-forward refused", tunnelPortForward, nil, "the call failed"},
		{"port-forward without agent", tunnelPortForward, noAgent, "No agent available"},
		{"node proxy", tunnelNodeProxy, nil, ""},
		{"node proxy direct", tunnelNodeProxy, noTunnel, "not through the tunnel"},
		{"node proxy unhealthy", tunnelNodeProxy, func(a *stubAPI) { a.healthz = "sick" }, `returned "sick"`},
		{"node proxy to loopback", tunnelNodeProxy, func(a *stubAPI) { a.callError = "address not allowed" }, "address not allowed"},
		{"node proxy without ready node", tunnelNodeProxy, func(a *stubAPI) { delete(a.objects, "/api/v1/nodes/node-0") }, "no node is Ready"},
		{"service proxy", tunnelServiceProxy, nil, ""},
		{"service proxy direct", tunnelServiceProxy, noTunnel, "not through the tunnel"},
		{"service proxy without agent", tunnelServiceProxy, noAgent, "No agent available"},
		{"webhook", tunnelWebhook, nil, ""},
		{"webhook direct", tunnelWebhook, noTunnel, "not through the tunnel"},
		{"webhook not asked", tunnelWebhook, func(a *stubAPI) { a.skipWebhook = true }, "does not call the webhook"},
		{"webhook that nodes learn of one by one", tunnelWebhook, func(a *stubAPI) { a.lateNodes = []int{1, 3, 9} }, ""},
		{"webhook without agent", tunnelWebhook, noAgent, "No agent available"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			api := newStubAPI(t)
			if tc.broken != nil {
				tc.broken(api)
			}
			limit := time.Minute
			if tc.name == "webhook not asked" || tc.name == "webhook without agent" { // these try until then
				limit = 8 * time.Second
			}
			res := runOne(t.Context(), api.env(t), checkOf("x", tc.run), Options{Timeout: limit}.withDefaults(), shared{})
			switch {
			case tc.wantErr == "" && res.Status != OK:
				t.Errorf("failed: %s", res.Error)
			case tc.wantErr != "" && (res.Status != Failed || !strings.Contains(res.Error, tc.wantErr)):
				t.Errorf("got %s %q, want %q", res.Status, res.Error, tc.wantErr)
			}
			if res.Status == OK && res.Details["proof"] == "" {
				t.Error("no proof in the details")
			}
			if left := api.find("/validatingwebhookconfigurations/"); left != nil {
				t.Errorf("a webhook was left behind: %v", left)
			}
		})
	}
}

func TestWebhookNeedsAnAddress(t *testing.T) {
	env := newStubAPI(t).env(t)
	env.HostIP = ""
	res := runOne(t.Context(), env, checkOf("x", tunnelWebhook), Options{}.withDefaults(), shared{})
	if res.Status != Failed || !strings.Contains(res.Error, "only loopback addresses") || !strings.Contains(res.Hint, "--webhook-address") {
		t.Errorf("got %+v", res)
	}
}

func TestCallHints(t *testing.T) {
	for text, want := range map[string]string{
		`Get "https://10.0.0.1:10250/containerLogs/a/b/c": No agent available`: "no Konnectivity agent is connected",
		"address not allowed": "must not be loopback",
		"dial unix /etc/kubernetes/konnectivity-server/konnectivity-server.socket: connect: no such file or directory": "cannot reach konnectivity-server's socket",
		"dial tcp: lookup node-0: no such host":            "--kubelet-preferred-address-types",
		"tls: failed to verify certificate: x509: unknown": "does not trust the certificate",
		"something else": "",
	} {
		if got := callHint(fmt.Errorf("%s", text)); !strings.Contains(got, want) || (want == "" && got != "") {
			t.Errorf("%q: got hint %q, want %q", text, got, want)
		}
	}
}

func listen(t *testing.T, handle func(net.Conn)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { defer conn.Close(); handle(conn) }()
		}
	}()
	return listener.Addr().String()
}

func TestEchoThroughForwardedPort(t *testing.T) {
	tests := map[string]struct {
		handle  func(net.Conn)
		wantErr string
	}{
		"echo":    {func(c net.Conn) { _, _ = io.Copy(c, c) }, ""},
		"damaged": {func(c net.Conn) { _, _ = c.Write([]byte(strings.Repeat("x", 64))) }, "but got"},
		"closed":  {func(net.Conn) {}, "forwarded port"},
		"silent":  {func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }, "read from the forwarded port"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			limit := 10 * time.Second
			if name == "silent" {
				limit = time.Second
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			err := echo(ctx, listen(t, tc.handle), randomText(24))
			if (err == nil) != (tc.wantErr == "") || (err != nil && !strings.Contains(err.Error(), tc.wantErr)) {
				t.Errorf("got %v, want %q", err, tc.wantErr)
			}
		})
	}
}

func TestHTTPThroughForwardedPort(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/echo" {
			_, _ = io.WriteString(w, r.URL.Query().Get("msg"))
			return
		}
		w.WriteHeader(http.StatusNotFound)
	}))
	defer server.Close()
	for path, ok := range map[string]bool{"/echo?msg=%s": true, "/echo?msg=other": true, "/else?msg=%s": false} {
		s := newScope(&Env{Probe: Probe{PortForwardPath: path}}, "x")
		if err := s.useForward(t.Context(), strings.TrimPrefix(server.URL, "http://")); (err == nil) != ok {
			t.Errorf("%s: got %v", path, err)
		}
	}
	if err := httpHas(t.Context(), server.URL+"/echo?msg=a", "b"); err == nil {
		t.Error("another answer must not pass")
	}
}

func TestThrowAwayCertificateNamesOnlyTheService(t *testing.T) {
	h, err := startHookServer(t.Context(), "verify.ns.svc", "127.0.0.1", 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	api := newStubAPI(t)
	api.put("/apis/discovery.k8s.io/v1/namespaces/ns/endpointslices/x", map[string]any{
		"endpoints": []any{map[string]any{"addresses": []string{"127.0.0.1"}}}, "ports": []any{map[string]any{"port": h.port}}})
	client := api.endpointClient(h.caPEM)
	for name, ok := range map[string]bool{"verify.ns.svc": true, "other.ns.svc": false} {
		resp, err := client.Get("https://" + name + "/echo?msg=a")
		if (err == nil) != ok {
			t.Errorf("asked as %s: %v", name, err)
		}
		if err == nil {
			_ = resp.Body.Close()
		}
	}
}
