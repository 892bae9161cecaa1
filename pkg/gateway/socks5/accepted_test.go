// SPDX-License-Identifier: Apache-2.0

package socks5

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
	"github.com/fairlead-dev/fairlead/pkg/gateway/auth"
)

// TestStrangerAtOneAddress: a stranger who sends wrong tokens all the time has all the reviews of an address. The users
// behind the same address whose tokens were accepted before, and those with certificates, are served all the same. A token that was not
// reviewed yet, or was refused, is not.
func TestStrangerAtOneAddress(t *testing.T) {
	t.Parallel()
	ca := newCA(t)
	ca.server(t)
	carol := ca.client(t, "carol", "ops")
	w := newWorld(t, withTLS(t, ca), func(_ *world, c *Config) {
		c.FailureDelay = time.Hour // of the stranger's tokens
		c.Authenticator.Tokens = auth.NewTokens(rightTokens().AuthenticationV1().TokenReviews(), nil)
	})
	t.Cleanup(w.cancel) // it ends the delays
	w.name("web.default", serveTCP(t, echo))
	send := func(text string, certificates ...tls.Certificate) net.Conn {
		t.Helper()
		nc, err := tls.Dial("tcp", w.addr, &tls.Config{RootCAs: ca.pool(), Certificates: certificates})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = nc.Close() })
		_ = nc.SetDeadline(time.Now().Add(20 * time.Second))
		_, _ = io.WriteString(nc, text)
		return nc
	}
	for name, form := range tokenForms {
		if !served(t, send(form("right-before"))) {
			t.Errorf("%s: a right token is not served", name)
		}
	}
	for i := range maxChecks {
		send(tokenForms["bearer"](fmt.Sprintf("wrong-%d", i)))
	}
	daemontest.Eventually(t, 20*time.Second, func() error {
		if n := w.checks(); n != maxChecks {
			return fmt.Errorf("%d of %d wrong tokens are checked", n, maxChecks)
		}
		return nil
	})
	for name, form := range tokenForms {
		if !served(t, send(form("right-before"))) {
			t.Errorf("%s: a token that was accepted before is not served", name)
		}
		for _, token := range []string{"right-new", "wrong-0"} {
			if served(t, send(form(token))) {
				t.Errorf("%s: %s is reviewed next to %d others", name, token, maxChecks)
			}
		}
	}
	if !served(t, send("CONNECT web.default:7 HTTP/1.1\r\n\r\n", carol)) {
		t.Error("a client with a certificate is not served")
	}
}

// rightTokens is an API server that accepts tokens that begin with "right".
func rightTokens() kubernetes.Interface {
	client := fake.NewClientset()
	client.PrependReactor("create", "tokenreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		r := action.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenReview).DeepCopy()
		r.Status.Authenticated = strings.HasPrefix(r.Spec.Token, "right")
		r.Status.User.Username = r.Spec.Token
		return true, r, nil
	})
	return client
}

// checks is how many tokens and passwords of all clients are being checked.
func (w *world) checks() (n int) {
	w.Server.mu.Lock()
	defer w.Server.mu.Unlock()
	for _, checks := range w.checking {
		n += checks
	}
	return n
}

// served reports whether the answer to a request, or to a login of SOCKS5, lets the client in. Otherwise it has to be busy.
func served(t *testing.T, nc net.Conn) bool {
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
