// SPDX-License-Identifier: Apache-2.0

package suite_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/e2e/harness"
	"github.com/fairlead-dev/fairlead/internal/testutil"
)

// TestGateway: the gateway of the bundle carries only what is allowed. On kind curl fetches the hello
// application of the documentation through it, as docs/gateway.md has it.
// It observes HTTP-01 of docs/requirements.md.
func TestGateway(t *testing.T) {
	testutil.Full(t, "the cluster of `make test` has no gateway")
	steps := []step{{"verify", func(ctx context.Context, t *testing.T) {
		out, err := suite.Must(ctx, "verify", "--context", suite.Context(), "--only", "gateway-access")
		if err != nil {
			t.Error(err)
		}
		wantText(t, "the report", out, "gateway-access")
	}}}
	if !suite.Simulated() { // the gateway of a simulated node is not at a Pod's address
		steps = append(steps, step{"the hello application with a user's token", helloThroughGateway})
	}
	run(t, "gateway", 3*time.Minute, steps...)
}

// helloThroughGateway reaches the gateway's Service through "fairlead socks5", because this machine is not
// in the Pod network, and the application through the gateway.
func helloThroughGateway(ctx context.Context, t *testing.T) {
	page := "http://" + helloApp(ctx, t) + "." + harness.Namespace + ":8080/"
	token, ca := userOfGateway(ctx, t, "alice", "hello-app"), gatewayCA(ctx, t)
	// curl has one user for both proxies, and that is the user of the first. A header of its own goes to the second alone.
	curl := `curl -sS --fail --max-time 20 --preproxy "$ALL_PROXY" --proxytunnel --proxy-cacert ` + ca +
		` -x https://fairlead-gateway.kube-system.svc:1080 --proxy-header 'Proxy-Authorization: Bearer ` + token + `' `
	out, audit := throughSOCKS5(ctx, t, succeeds, "sh", "-c", curl+page)
	wantText(t, "the page", out, "Hello, world!", "Hostname: hello-app-")
	wantText(t, "the audit line of the way to the gateway", audit, `name="fairlead-gateway"`)
	// The user's rights end at the one Service.
	out, _ = throughSOCKS5(ctx, t, fails, "sh", "-c", curl+"-v http://"+harness.ServerName+"."+harness.Namespace+"/ 2>&1")
	wantText(t, "what curl says", out, "403")
}

// userOfGateway makes a ServiceAccount that may reach one Service of its namespace, until the test ends, and
// returns a token of it for the gateway.
func userOfGateway(ctx context.Context, t *testing.T, name, service string) (token string) {
	t.Helper()
	core, rbac := suite.Client.CoreV1().ServiceAccounts(harness.Namespace), suite.Client.RbacV1()
	meta := metav1.ObjectMeta{Name: name}
	_, err := core.Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	rules := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"services/proxy"}, ResourceNames: []string{service}, Verbs: []string{"create"}}}
	if _, err := rbac.Roles(harness.Namespace).Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err = rbac.RoleBindings(harness.Namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: harness.Namespace, Name: name}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	atEnd(ctx, t, func(ctx context.Context) {
		_ = rbac.RoleBindings(harness.Namespace).Delete(ctx, name, metav1.DeleteOptions{})
		_ = rbac.Roles(harness.Namespace).Delete(ctx, name, metav1.DeleteOptions{})
		_ = core.Delete(ctx, name, metav1.DeleteOptions{})
	})
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{"fairlead-gateway"}}}
	request, err = core.CreateToken(ctx, name, request, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return request.Status.Token
}

// gatewayCA returns a file with the CA of the gateway's certificate.
func gatewayCA(ctx context.Context, t *testing.T) (file string) {
	t.Helper()
	secret, err := suite.Client.CoreV1().Secrets(metav1.NamespaceSystem).Get(ctx, "fairlead-gateway-tls", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, secret.Data["ca.crt"], 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
