// SPDX-License-Identifier: Apache-2.0

package socks5

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/fairlead-dev/fairlead/pkg/gateway/auth"
)

// TestStrangerAtOneAddress: a stranger who sends wrong tokens all the time has all the reviews of an address. The users
// behind the same address whose tokens were accepted before, and those with certificates, are served all the same. A token that was not
// reviewed yet, or was refused, is not.
func TestStrangerAtOneAddress(t *testing.T) {
	ca := newCA(t)
	ca.server(t)
	ca.client(t, "carol", "ops")
	client := fake.NewClientset()
	client.PrependReactor("create", "tokenreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		r := action.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenReview).DeepCopy()
		r.Status.Authenticated = strings.HasPrefix(r.Spec.Token, "right")
		r.Status.User.Username = r.Spec.Token
		return true, r, nil
	})
	w := newWorld(t, withTLS(t, ca), func(_ *world, c *Config) {
		c.FailureDelay = time.Hour // of the stranger's tokens
		c.Authenticator.Tokens = auth.NewTokens(client.AuthenticationV1().TokenReviews(), nil)
	})
	t.Cleanup(w.cancel) // it ends the delays
	w.name("web.default", serveTCP(t, echo))
	clientTLS := func(certificates ...tls.Certificate) *tls.Config {
		pem, err := os.ReadFile(ca.file("ca.crt"))
		if err != nil {
			t.Fatal(err)
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(pem)
		return &tls.Config{RootCAs: roots, ServerName: "127.0.0.1", Certificates: certificates, MinVersion: tls.VersionTLS12}
	}
	send := func(config *tls.Config, text string) net.Conn {
		t.Helper()
		nc, err := tls.Dial("tcp", w.addr, config)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = nc.Close() })
		_ = nc.SetDeadline(time.Now().Add(20 * time.Second))
		_, _ = io.WriteString(nc, text)
		return nc
	}
	// served tells whether the answer to a request, or to a login of SOCKS5, lets the client in; otherwise it has to be busy.
	served := func(nc net.Conn) bool {
		t.Helper()
		in := bufio.NewReader(nc)
		if first, err := in.Peek(1); err == nil && first[0] == 5 {
			answer := make([]byte, 4)
			if _, err := io.ReadFull(in, answer); err != nil || !slices.Contains([]string{loggedIn, "\x05\x02\x01\x01"}, string(answer)) {
				t.Errorf("the answer is %q, %v", answer, err)
			}
			return string(answer) == loggedIn
		}
		line, err := in.ReadString('\n')
		if err != nil || !strings.HasPrefix(line, "HTTP/1.1 200 ") && !strings.HasPrefix(line, "HTTP/1.1 503 ") {
			t.Errorf("the answer is %q, %v", line, err)
		}
		return strings.HasPrefix(line, "HTTP/1.1 200 ")
	}
	for name, form := range tokenForms {
		if !served(send(clientTLS(), form("right-before"))) {
			t.Errorf("%s: a right token is not served", name)
		}
	}
	for i := range maxChecks {
		send(clientTLS(), tokenForms["bearer"](fmt.Sprintf("wrong-%d", i)))
	}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		w.Server.mu.Lock()
		n := 0
		for _, checks := range w.checking {
			n += checks
		}
		w.Server.mu.Unlock()
		if n == maxChecks {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d of %d wrong tokens are checked", n, maxChecks)
		}
	}
	for name, form := range tokenForms {
		if !served(send(clientTLS(), form("right-before"))) {
			t.Errorf("%s: a token that was accepted before is not served", name)
		}
		for _, token := range []string{"right-new", "wrong-0"} {
			if served(send(clientTLS(), form(token))) {
				t.Errorf("%s: %s is reviewed beside %d others", name, token, maxChecks)
			}
		}
	}
	pair, err := tls.LoadX509KeyPair(ca.file("carol.crt"), ca.file("carol.key"))
	if err != nil {
		t.Fatal(err)
	}
	if !served(send(clientTLS(pair), "CONNECT web.default:7 HTTP/1.1\r\n\r\n")) {
		t.Error("a client with a certificate is not served")
	}
}
