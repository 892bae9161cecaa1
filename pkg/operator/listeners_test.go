// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	operatorbundle "github.com/fairlead-dev/fairlead/pkg/bundle/operator"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
	"github.com/fairlead-dev/fairlead/pkg/operator"
)

// listeners are the addresses of an operator's listeners.
type listeners struct{ webhook, metrics, health string }

// TestListeners: with the rights that are rendered, the operator shows metrics over TLS, with a
// certificate of the CA in its Secret, only to users who may get /metrics. All
// listeners have bounds.
// It observes VER-64 and VER-68 of docs/requirements.md.
func TestListeners(t *testing.T) {
	testutil.Full(t, "waits for the time limits of the listeners")
	daemontest.Beside(t)
	ports := daemontest.Ports(t, 2)
	l := listeners{metrics: "127.0.0.1:" + ports[0], health: "127.0.0.1:" + ports[1]}
	e, refused := installed(t, func(o *operator.Options) {
		o.MetricsAddress, o.HealthAddress, o.WebhookService, l.webhook = l.metrics, l.health, operatorbundle.Name, o.WebhookAddress
	})
	testutil.Eventually(t, bound, func() error {
		if status, text := get(t, nil, "http://"+l.health+"/readyz", ""); status != http.StatusOK {
			return fmt.Errorf("/readyz: %d, %s", status, text)
		}
		return nil
	})
	t.Run("metrics", func(t *testing.T) { testMetrics(t, e, l.metrics) })
	if list := refused.take(); len(list) > 0 {
		t.Errorf("the API server has refused\n%s", strings.Join(list, "\n"))
	}
	for name, address := range map[string]string{"webhook": l.webhook, "metrics": l.metrics, "health": l.health} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testBounds(t, address, name != "health")
			if name == "webhook" {
				testStreams(t, address)
			}
		})
	}
}

// testStreams: a connection has 16 requests at a time, each of which sends 256 KiB at most before
// its handler reads.
func testStreams(t *testing.T, address string) {
	c, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}) //nolint:gosec // the test is about bounds
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(bound))
	framer := http2.NewFramer(c, c)
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	if err := framer.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	frame, err := framer.ReadFrame()
	if err != nil {
		t.Fatal(err)
	}
	settings, ok := frame.(*http2.SettingsFrame)
	if !ok {
		t.Fatalf("the first frame is %v", frame)
	}
	for id, most := range map[http2.SettingID]uint32{http2.SettingMaxConcurrentStreams: 16, http2.SettingInitialWindowSize: 256 << 10} {
		if n, ok := settings.Value(id); !ok || n > most {
			t.Errorf("%v is %d, want %d at most", id, n, most)
		}
	}
}

// TestEnding: an operator that shuts down is not ready any more, and converts for a while,
// until API servers know that. It does not end before it has answered the requests that have come.
// It observes VER-68 of docs/requirements.md.
func TestEnding(t *testing.T) {
	testutil.Full(t, "waits for the drain")
	daemontest.Beside(t)
	e := start(t)
	ports := daemontest.Ports(t, 2)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const drain = 3 * time.Second
	done := make(chan error, 1)
	o := operator.Options{
		Namespace: "kube-system", WebhookAddress: "127.0.0.1:" + ports[0], WebhookURL: "https://127.0.0.1:" + ports[0] + "/convert",
		WebhookNames: []string{"127.0.0.1"}, MetricsAddress: "0", HealthAddress: "127.0.0.1:" + ports[1], Drain: drain,
	}
	o.Quick(e.metrics)
	go func() { done <- operator.Run(ctx, e.cfg, o) }()
	ready := func(want int) {
		t.Helper()
		testutil.Eventually(t, bound, func() error {
			if status, text := get(t, nil, "http://127.0.0.1:"+ports[1]+"/readyz", ""); status != want {
				return fmt.Errorf("/readyz: %d, want %d: %s", status, want, text)
			}
			return nil
		})
	}
	ready(http.StatusOK)
	testutil.Eventually(t, bound, func() error {
		_, err := e.bundles.Create(t.Context(), object("Bundle", "", "default", map[string]any{"managementPolicy": "Observe"}), metav1.CreateOptions{})
		return err
	})
	answered, sendRest := slowConversion(t, "https://127.0.0.1:"+ports[0]+"/convert")
	began := time.Now() // not after the operator's time begins
	cancel()
	ready(http.StatusInternalServerError)
	for time.Since(began) < drain {
		if _, err := e.old.Get(t.Context(), "default", metav1.GetOptions{}); err != nil && time.Since(began) < drain {
			t.Fatalf("%v after the operator began to shut down: %v", time.Since(began), err)
		}
	}
	select {
	case err := <-done:
		t.Fatalf("the operator has ended before it has answered: %v", err)
	case <-time.After(time.Second): // the rest of the operator has ended by then
	}
	sendRest()
	if got := <-answered; !strings.Contains(got, `"status":"Success"`) {
		t.Errorf("a conversion that outlasts the drain: %s", got)
	}
	select {
	case err := <-done:
		if took := time.Since(began); err != nil || took < drain {
			t.Errorf("the operator ended after %v: %v", took, err)
		}
	case <-time.After(bound):
		t.Error("the operator does not end")
	}
}

// slowConversion begins to send a request, of which the returned function sends the rest. The channel gets
// the answer, or the error.
func slowConversion(t *testing.T, url string) (answered chan string, sendRest func()) {
	t.Helper()
	const text = `{"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": {"uid": "1", "desiredAPIVersion": "fairlead.dev/v1beta1", "objects": [{"apiVersion": "fairlead.dev/v1alpha1", "kind": "TunnelPool", "metadata": {"name": "a"}}]}}`
	body, writer := io.Pipe()
	client := &http.Client{Timeout: bound, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true, //nolint:gosec // the test is about the end
	}}
	answered = make(chan string, 1)
	go func() {
		response, err := client.Post(url, "application/json", body)
		if err != nil {
			answered <- err.Error()
			return
		}
		defer func() { _ = response.Body.Close() }()
		answer, err := io.ReadAll(response.Body)
		answered <- fmt.Sprint(string(answer), err)
	}()
	send := func(part string) {
		if _, err := io.WriteString(writer, part); err != nil {
			t.Error(err)
		}
	}
	send(text[:20])
	return answered, func() {
		send(text[20:])
		_ = writer.Close()
	}
}

func testMetrics(t *testing.T, e *env, address string) {
	var secret *corev1.Secret
	testutil.Eventually(t, bound, func() (err error) { // the operator makes it soon after its start
		secret, err = e.client.CoreV1().Secrets(operatorbundle.DefaultNamespace).Get(t.Context(), operatorbundle.WebhookSecret, metav1.GetOptions{})
		return err
	})
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(secret.Data["ca.crt"]) {
		t.Fatal("the Secret has no CA")
	}
	trust := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, ServerName: operatorbundle.Name + "." + operatorbundle.DefaultNamespace + ".svc"}
	url := "https://" + address + "/metrics"
	token := func(name string) string {
		t.Helper()
		accounts := e.client.CoreV1().ServiceAccounts("default")
		if _, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		request, err := accounts.CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return request.Status.Token
	}
	// As docs/api.md says.
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "prometheus"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:monitoring"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "prometheus"}},
	}
	if _, err := e.client.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	allowed, stranger := token("prometheus"), token("stranger")
	testutil.Eventually(t, bound, func() error { // the metrics come soon after the operator is ready, and RBAC sees the binding
		status, text := get(t, trust, url, allowed)
		for _, name := range []string{"fairlead_conversion_request_duration_seconds", "controller_runtime_reconcile_errors_total", "leader_election_master_status"} {
			if status != http.StatusOK || !strings.Contains(text, name) {
				return fmt.Errorf("status %d, %s is not in\n%s", status, name, text)
			}
		}
		return nil
	})
	if status, text := get(t, trust, url, ""); status != http.StatusUnauthorized {
		t.Errorf("without a token: %d %s", status, text)
	}
	if status, text := get(t, trust, url, "forged"); status == http.StatusOK || strings.Contains(text, "fairlead_") {
		t.Errorf("with a forged token: %d %s", status, text)
	}
	if status, text := get(t, trust, url, stranger); status != http.StatusForbidden {
		t.Errorf("without the right to get /metrics: %d %s", status, text)
	}
	if status, text := get(t, nil, "http://"+address+"/metrics", allowed); status == http.StatusOK {
		t.Errorf("without TLS: %d %s", status, text)
	}
}

// get asks for a URL; the status of no answer is 0.
func get(t *testing.T, trust *tls.Config, url, token string) (status int, text string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	client := &http.Client{Timeout: bound, Transport: &http.Transport{TLSClientConfig: trust, DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(body)
}

// testBounds: a header of 32 KiB is refused, 120 silent connections do not all stay and do not
// keep out another one, and those that stay are closed after some seconds.
func testBounds(t *testing.T, address string, encrypted bool) {
	dial := func() net.Conn {
		t.Helper()
		c, err := net.DialTimeout("tcp", address, bound)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	ask := func(header string) (status int, err error) {
		c := dial()
		if encrypted {
			c = tls.Client(c, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // the test is about bounds
		}
		_ = c.SetDeadline(time.Now().Add(bound))
		if _, err := fmt.Fprintf(c, "GET /none HTTP/1.1\r\nHost: x\r\nX: %s\r\n\r\n", header); err != nil {
			return 0, err
		}
		response, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			return 0, err
		}
		return response.StatusCode, response.Body.Close()
	}
	if status, err := ask(strings.Repeat("x", 32<<10)); status != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("a header of 32 KiB: %d, %v", status, err)
	}
	var silent []net.Conn
	for range 120 {
		silent = append(silent, dial())
	}
	if status, err := ask(""); status != http.StatusNotFound {
		t.Errorf("beside 120 silent connections: %d, %v", status, err)
	}
	count := func(wait time.Duration) (open int) {
		end := time.Now().Add(wait)
		for _, c := range silent {
			_ = c.SetReadDeadline(end)
			var ne net.Error
			if _, err := io.Copy(io.Discard, c); errors.As(err, &ne) && ne.Timeout() {
				open++
			}
		}
		return open
	}
	if open := count(5 * time.Second); open > 100 {
		t.Errorf("%d silent connections are open, want 100 at most", open)
	}
	if open := count(30 * time.Second); open > 0 {
		t.Errorf("%d connections that send nothing are open after 30 s", open)
	}
}
