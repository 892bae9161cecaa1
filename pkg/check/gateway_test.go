// SPDX-License-Identifier: Apache-2.0

package check

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// fakeGateway answers CONNECT with the status that decide returns, and connects to the hook's server
// after 200.
func fakeGateway(t *testing.T, h *hook, decide func(token, to string) int) *gatewayClient {
	t.Helper()
	ca, cert, err := throwAwayCert("gateway.test")
	if err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12})
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
				req, err := http.ReadRequest(bufio.NewReader(c))
				if err != nil {
					return
				}
				status := decide(strings.TrimPrefix(req.Header.Get("Proxy-Authorization"), "Bearer "), req.Host)
				_, _ = fmt.Fprintf(c, "HTTP/1.1 %d x\r\n\r\n", status)
				if status != http.StatusOK {
					return
				}
				server, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", h.port))
				if err != nil {
					return
				}
				defer server.Close()
				go func() { _, _ = io.Copy(server, c) }()
				_, _ = io.Copy(c, server)
			}()
		}
	}()
	s := &Scope{Env: &Env{Gateway: &Gateway{ServerName: "gateway.test"}}}
	g, err := s.newGatewayClient(l.Addr().String(), ca)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func testHook(t *testing.T) *hook {
	t.Helper()
	server, err := startHookServer(t.Context(), hookService+".ns.svc", "127.0.0.1", 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	return &hook{hookServer: server, namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns"}}}
}

// TestGatewayRefuses: a gateway that opens a connection which it must refuse fails the check, and so
// does one that refuses it for another reason.
func TestGatewayRefuses(t *testing.T) {
	h := testHook(t)
	for status, want := range map[int]string{
		http.StatusForbidden: "", http.StatusOK: "opened a connection that it must refuse", http.StatusBadGateway: "must answer 403, but answered 502",
	} {
		err := fakeGateway(t, h, func(string, string) int { return status }).refuses(t.Context(), "other", "a:1", http.StatusForbidden)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("status %d: %v, want %q", status, err, want)
		}
	}
}

// TestGatewayCarries: the check's own server is asked through the gateway, also if the gateway learns of
// the rights late. One that never lets the client through fails the check; with rules of the user's it
// is skipped.
func TestGatewayCarries(t *testing.T) {
	h, tries := testHook(t), 0
	late := fakeGateway(t, h, func(token, to string) int {
		if tries++; tries < 2 || token != "may" || to != "verify.ns.svc:443" {
			return http.StatusForbidden
		}
		return http.StatusOK
	})
	if err := late.carries(t.Context(), "may", "verify.ns.svc:443", h); err != nil || tries != 2 {
		t.Errorf("after %d tries: %v", tries, err)
	}
	never := fakeGateway(t, h, func(string, string) int { return http.StatusForbidden })
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := never.carries(ctx, "may", "verify.ns.svc:443", h); err == nil || IsSkip(err) {
		t.Errorf("a gateway that refuses: %v", err)
	}
	never.rules = true
	if err := never.carries(t.Context(), "may", "verify.ns.svc:443", h); !IsSkip(err) {
		t.Errorf("with rules: %v", err)
	}
}
