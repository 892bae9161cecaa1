// SPDX-License-Identifier: Apache-2.0

package check

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
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Gateway says how checks reach the gateway.
type Gateway struct {
	// Audience is one that the gateway demands of tokens.
	Audience string
	// ServerName is the name in its certificate.
	ServerName string
	// HasRules says that a rule file decides, too.
	HasRules bool
	// Reach calls use with an address at which the gateway answers, and with the CA of its certificate in PEM.
	Reach func(ctx context.Context, use func(ctx context.Context, address string, ca []byte) error) error
}

// metadataService is what a client of a gateway in a cloud must not reach.
const metadataService = "169.254.169.254:80"

// gatewayAccess proves that the gateway carries a connection of a ServiceAccount that may reach a Service, and refuses one that may not,
// one without a valid token, and the metadata service for all of them.
func gatewayAccess(ctx context.Context, s *Scope) error {
	if s.Gateway == nil {
		return Skip("the bundle has gateway.enabled: false")
	}
	h, err := s.startHook(ctx)
	if err != nil {
		return err
	}
	// The right to a Service is none to an endpoint that is no Pod of its namespace.
	if err := s.standInPod(ctx, h); err != nil {
		return err
	}
	ns := h.namespace.Name
	if err := s.allowServices(ctx, ns, "may"); err != nil {
		return err
	}
	may, err := s.tokenOf(ctx, ns, "may")
	if err != nil {
		return err
	}
	other, err := s.tokenOf(ctx, ns, "may-not")
	if err != nil {
		return err
	}
	service := fmt.Sprintf("%s.%s.svc:%d", hookService, ns, hookPort)
	return s.Gateway.Reach(ctx, func(ctx context.Context, address string, ca []byte) error {
		g, err := s.newGatewayClient(address, ca)
		if err != nil {
			return err
		}
		for _, refusal := range []struct {
			who, token, to string
			want           int
		}{
			{"a ServiceAccount without rights", other, service, http.StatusForbidden},
			{"a client with a false token", "false", service, http.StatusProxyAuthRequired},
			{"a ServiceAccount with rights", may, metadataService, http.StatusForbidden},
		} {
			if err := g.refuses(ctx, refusal.token, refusal.to, refusal.want); err != nil {
				return fmt.Errorf("%s, to %s: %w", refusal.who, refusal.to, err)
			}
		}
		began := time.Now()
		if err := g.carries(ctx, may, service, h); err != nil {
			return err
		}
		s.Detail("carried", "after %v", time.Since(began).Round(time.Millisecond))
		return nil
	})
}

// tokenOf makes a ServiceAccount and a token of it for the gateway.
func (s *Scope) tokenOf(ctx context.Context, namespace, name string) (string, error) {
	accounts := s.Client.CoreV1().ServiceAccounts(namespace)
	if _, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		return "", fmt.Errorf("create ServiceAccount: %w", err)
	}
	token, err := accounts.CreateToken(ctx, name, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{Audiences: []string{s.Gateway.Audience}},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("request a token of ServiceAccount %s for audience %s: %w", name, s.Gateway.Audience, err)
	}
	return token.Status.Token, nil
}

// allowServices lets a ServiceAccount reach the namespace's Services through the gateway.
func (s *Scope) allowServices(ctx context.Context, namespace, account string) error {
	meta := metav1.ObjectMeta{Name: "gateway-services"}
	role := &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"services/proxy"}, Verbs: []string{"create"}}}}
	if _, err := s.Client.RbacV1().Roles(namespace).Create(ctx, role, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create Role: %w", err)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: account}},
	}
	if _, err := s.Client.RbacV1().RoleBindings(namespace).Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create RoleBinding: %w", err)
	}
	return nil
}

// gatewayClient asks the gateway for connections by HTTP CONNECT.
type gatewayClient struct {
	address string
	config  *tls.Config
	rules   bool
}

func (s *Scope) newGatewayClient(address string, ca []byte) (*gatewayClient, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return nil, WithHint(errors.New("the CA of the gateway's certificate has no certificate"), "put it as ca.crt into the Secret of the gateway's certificate")
	}
	return &gatewayClient{address: address, config: &tls.Config{RootCAs: pool, ServerName: s.Gateway.ServerName, MinVersion: tls.VersionTLS12}, rules: s.Gateway.HasRules}, nil
}

// connect returns the status of the answer, and the connection if that is 200. Why is what the gateway says about a refusal.
func (g *gatewayClient) connect(ctx context.Context, token, to string) (c net.Conn, status int, why string, err error) {
	conn, err := (&tls.Dialer{Config: g.config}).DialContext(ctx, "tcp", g.address)
	if err != nil {
		return nil, 0, "", fmt.Errorf("connect to the gateway: %w", err)
	}
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline)
	}
	_, err = fmt.Fprintf(conn, "CONNECT %[1]s HTTP/1.1\r\nHost: %[1]s\r\nProxy-Authorization: Bearer %[2]s\r\n\r\n", to, token)
	if err != nil {
		_ = conn.Close()
		return nil, 0, "", fmt.Errorf("ask the gateway: %w", err)
	}
	r := bufio.NewReader(conn)
	res, err := http.ReadResponse(r, &http.Request{Method: http.MethodConnect}) //nolint:bodyclose // the body is the tunnel
	if err != nil {
		_ = conn.Close()
		return nil, 0, "", fmt.Errorf("read the gateway's answer: %w", err)
	}
	if res.StatusCode == http.StatusOK {
		return &answered{Conn: conn, r: r}, res.StatusCode, "", nil
	}
	defer conn.Close()
	body, _ := io.ReadAll(io.LimitReader(res.Body, 4<<10))
	return nil, res.StatusCode, strings.TrimSpace(res.Status + ": " + string(body)), nil
}

// answered is a connection of which a reader may hold the first bytes.
type answered struct {
	net.Conn
	r io.Reader
}

func (a *answered) Read(p []byte) (int, error) { return a.r.Read(p) }

// refuses wants the gateway to answer with this status.
func (g *gatewayClient) refuses(ctx context.Context, token, to string, want int) error {
	c, status, why, err := g.connect(ctx, token, to)
	switch {
	case err != nil:
		return err
	case c != nil:
		_ = c.Close()
		return errors.New("the gateway opened a connection that it must refuse")
	case status != want:
		return fmt.Errorf("the gateway must answer %d, but answered %s", want, why)
	}
	return nil
}

// carries asks the check's own server a question through the gateway. It tries again while the gateway does not know the new Service or
// the new rights.
func (g *gatewayClient) carries(ctx context.Context, token, to string, h *hook) error {
	var refused string
	var conn net.Conn
	err := waitFor(ctx, 500*time.Millisecond, func(ctx context.Context) error {
		c, status, why, err := g.connect(ctx, token, to)
		if err == nil && c == nil {
			err = fmt.Errorf("the gateway refuses a ServiceAccount that may create services/proxy: %s", why)
			if refused = ""; status == http.StatusForbidden && g.rules {
				refused = why
				return nil
			}
		}
		conn = c
		return err
	})
	if err != nil {
		return err
	}
	if refused != "" {
		return Skip("gateway.rules do not allow the check's Service (%s): allow namespaces %s* to prove the rest", refused, NamespacePrefix)
	}
	defer conn.Close()
	return askThrough(ctx, conn, h)
}

// askThrough sends a word to the check's own server over a connection, and wants it back.
func askThrough(ctx context.Context, conn net.Conn, h *hook) error {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(h.caPEM)
	name := fmt.Sprintf("%s.%s.svc", hookService, h.namespace.Name)
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(context.Context, string, string) (net.Conn, error) { return conn, nil },
		TLSClientConfig:   &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12},
	}}
	word := randomText(24)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+name+"/echo?msg="+word, nil)
	if err != nil {
		return err
	}
	res, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("ask the check's own server through the gateway: %w", err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, 1<<10))
	if err != nil {
		return fmt.Errorf("read the answer of the check's own server through the gateway: %w", err)
	}
	if string(body) != word {
		return fmt.Errorf("asked the check's own server through the gateway for %q, but got %q", word, body)
	}
	return nil
}
