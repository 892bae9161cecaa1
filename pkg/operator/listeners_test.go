// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"bufio"
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

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	operatorbundle "github.com/fairlead-dev/fairlead/pkg/bundle/operator"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
	"github.com/fairlead-dev/fairlead/pkg/operator"
)

// listeners are the addresses of an operator's listeners.
type listeners struct{ webhook, metrics, health string }

// TestListeners: with the rights that are rendered, the operator shows metrics over TLS, with a
// certificate of the CA in its Secret, only to users who may get /metrics. All
// listeners have bounds.
func TestListeners(t *testing.T) {
	ports := daemontest.Ports(t, 2)
	l := listeners{metrics: "127.0.0.1:" + ports[0], health: "127.0.0.1:" + ports[1]}
	e, refused := installed(t, func(o *operator.Options) {
		o.MetricsAddress, o.HealthAddress, o.WebhookService, l.webhook = l.metrics, l.health, operatorbundle.Name, o.WebhookAddress
	})
	daemontest.Eventually(t, bound, func() error {
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
		})
	}
}

func testMetrics(t *testing.T, e *env, address string) {
	secret, err := e.client.CoreV1().Secrets(operatorbundle.DefaultNamespace).Get(t.Context(), operatorbundle.WebhookSecret, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
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
	if status, text := get(t, trust, url, ""); status != http.StatusUnauthorized {
		t.Errorf("without a token: %d %s", status, text)
	}
	if status, text := get(t, trust, url, "forged"); status == http.StatusOK || strings.Contains(text, "fairlead_") {
		t.Errorf("with a forged token: %d %s", status, text)
	}
	if status, text := get(t, trust, url, stranger); status != http.StatusForbidden {
		t.Errorf("without the right to get /metrics: %d %s", status, text)
	}
	daemontest.Eventually(t, bound, func() error { // RBAC sees the binding soon
		status, text := get(t, trust, url, allowed)
		for _, name := range []string{"fairlead_conversion_request_duration_seconds", "controller_runtime_reconcile_errors_total", "leader_election_master_status"} {
			if status != http.StatusOK || !strings.Contains(text, name) {
				return fmt.Errorf("status %d, %s is not in\n%s", status, name, text)
			}
		}
		return nil
	})
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
	if open := count(time.Second); open > 100 {
		t.Errorf("%d silent connections are open, want 100 at most", open)
	}
	if open := count(15 * time.Second); open > 0 {
		t.Errorf("%d connections that send nothing are open after 15 s", open)
	}
}
