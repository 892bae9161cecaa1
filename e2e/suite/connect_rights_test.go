// SPDX-License-Identifier: Apache-2.0

package suite_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/e2e/harness"
	tunnelv1alpha1 "github.com/fairlead-dev/fairlead/pkg/apis/tunnel/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/bundle/rbac"
	"github.com/fairlead-dev/fairlead/pkg/bundle/tunnelapi"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/gateway"
)

// connectRights gives a user one right after the other. Without the last one there is no connection, and the error names
// what is missing. The right to the Services and Pods of a namespace is none to nodes and to addresses outside of the cluster.
func connectRights(ctx context.Context, t *testing.T) {
	const user = "e2e-connector"
	d := apiDialer(t, user)
	denied := func(to gateway.Destination, part string) func(context.Context) error {
		return func(ctx context.Context) error {
			err := connectAs(ctx, d, to)
			if gateway.ReasonOf(err) != gateway.ReasonDenied || !strings.Contains(err.Error(), part) {
				return fmt.Errorf("want a refusal that names %q, got %w", part, orSuccess(err))
			}
			return nil
		}
	}
	await(ctx, t, "the refusal of a user without rights", denied(echoService, "fairlead-tunnel-connect"))
	createClusterBinding(ctx, t, rbac.ClusterRoleBinding("fairlead-e2e-connector", tunnelapi.ConnectRole, rbac.User(user)))
	await(ctx, t, "the refusal of a user without a destination", denied(echoService, "destinations/services"))
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "fairlead-e2e-connector", Namespace: harness.Namespace}, Subjects: []rbacv1.Subject{rbac.User(user)},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: tunnelapi.DestinationsRole},
	}
	if _, err := suite.Client.RbacV1().RoleBindings(harness.Namespace).Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	atEnd(ctx, t, func(ctx context.Context) {
		_ = suite.Client.RbacV1().RoleBindings(harness.Namespace).Delete(ctx, binding.Name, metav1.DeleteOptions{})
	})
	await(ctx, t, "the connection of a user with all rights", func(ctx context.Context) error { return connectAs(ctx, d, echoService) })
	node := aNode(ctx, t).Name
	kubelet := gateway.Destination{Host: node, Port: 10250, Kind: gateway.KindNode, Name: node}
	outside := gateway.Destination{Host: "198.51.100.1", Port: 80, Kind: gateway.KindExternal, Addr: netip.MustParseAddrPort("198.51.100.1:80")}
	for part, to := range map[string]gateway.Destination{"destinations/nodes": kubelet, "destinations/addresses": outside} {
		if err := denied(to, part)(ctx); err != nil {
			t.Error(err)
		}
	}
}

// readerConnects: a WebSocket request is a GET, and who may only get the subresource is refused.
func readerConnects(ctx context.Context, t *testing.T) {
	const user = "e2e-reader"
	role := rbac.ClusterRole("fairlead-e2e-reader",
		rbacv1.PolicyRule{APIGroups: []string{tunnelv1alpha1.GroupName}, Resources: []string{"tunnelagents", "tunnelagents/portforward"}, Verbs: []string{"get", "list", "watch"}},
		rbacv1.PolicyRule{APIGroups: []string{tunnelv1alpha1.GroupName}, Resources: []string{"destinations/*"}, Verbs: []string{"connect"}})
	if _, err := suite.Client.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	atEnd(ctx, t, func(ctx context.Context) {
		_ = suite.Client.RbacV1().ClusterRoles().Delete(ctx, role.Name, metav1.DeleteOptions{})
	})
	createClusterBinding(ctx, t, rbac.ClusterRoleBinding(role.Name, role.Name, rbac.User(user)))
	d := apiDialer(t, user)
	await(ctx, t, "the refusal of a reader", func(ctx context.Context) error {
		err := connectAs(ctx, d, echoService)
		if gateway.ReasonOf(err) != gateway.ReasonDenied || !strings.Contains(err.Error(), "needs the verb create") {
			return fmt.Errorf("want a refusal that names the verb, got %w", orSuccess(err))
		}
		return nil
	})
}

func createClusterBinding(ctx context.Context, t *testing.T, b *rbacv1.ClusterRoleBinding) {
	t.Helper()
	bindings := suite.Client.RbacV1().ClusterRoleBindings()
	if _, err := bindings.Create(ctx, b, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	atEnd(ctx, t, func(ctx context.Context) { _ = bindings.Delete(ctx, b.Name, metav1.DeleteOptions{}) })
}

// connectRefusals: an agent that does not exist, a request that is none for a connection, local addresses, and a port at
// which nothing listens.
func connectRefusals(ctx context.Context, t *testing.T) {
	agents, err := connectedAgents(ctx)
	if err != nil {
		t.Fatal(err)
	}
	plain := func(agent, port string) error {
		return suite.Client.CoreV1().RESTClient().Get().AbsPath(tunnelv1alpha1.Path, "tunnelagents", agent, tunnelv1alpha1.SubresourceConnect).Param("host", echoService.Host).Param("port", port).Do(ctx).Error()
	}
	if err := plain("gone", "7"); !apierrors.IsNotFound(err) {
		t.Errorf("an agent that does not exist: %v", err)
	}
	for name := range agents {
		if err := plain(name, "7"); !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), "no WebSocket request") {
			t.Errorf("a request without WebSocket: %v", err)
		}
		if err := plain(name, "seven"); !apierrors.IsBadRequest(err) {
			t.Errorf("a port that is no number: %v", err)
		}
	}
	d := apiDialer(t, "")
	for _, host := range []string{"127.0.0.1", "169.254.169.254", "::1", "::ffff:127.0.0.1", "0.0.0.0", "fe80::1"} {
		addr := netip.MustParseAddr(host)
		to := gateway.Destination{Host: host, Port: 80, Kind: gateway.KindExternal, Addr: netip.AddrPortFrom(addr, 80)}
		if err := connectAs(ctx, d, to); gateway.ReasonOf(err) != gateway.ReasonDenied {
			t.Errorf("%s: %v", host, orSuccess(err))
		}
	}
	if err := connectAs(ctx, d, gateway.Destination{Host: "localhost", Port: 80, Kind: gateway.KindNode}); gateway.ReasonOf(err) != gateway.ReasonDenied {
		t.Errorf("localhost: %v", orSuccess(err))
	}
	to := echoService
	to.Host = "none." + harness.Namespace + ".svc"
	if err := connectAs(ctx, d, to); gateway.ReasonOf(err) != gateway.ReasonNotFound {
		t.Errorf("a Service that does not exist: %v", orSuccess(err))
	}
	to = echoService
	to.Port = 9
	if err := connectAs(ctx, d, to); gateway.ReasonOf(err) != gateway.ReasonNoEndpoints {
		t.Errorf("a port that the Service does not have: %v", orSuccess(err))
	}
}

// forgedFrontProxy sends the headers of kube-apiserver to the API itself, without its certificate.
func forgedFrontProxy(ctx context.Context, t *testing.T) {
	if !suite.Simulated() {
		return // this machine does not reach the API's Pods
	}
	slice, err := suite.Client.DiscoveryV1().EndpointSlices(metav1.NamespaceSystem).Get(ctx, v1alpha1.TunnelAPIName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	agents, err := connectedAgents(ctx)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // the client has nothing to lose
	for name := range agents {
		host := net.JoinHostPort(slice.Endpoints[0].Addresses[0], fmt.Sprint(*slice.Ports[0].Port))
		url := "https://" + host + tunnelv1alpha1.Path + "/tunnelagents/" + name + "/" + tunnelv1alpha1.SubresourceConnect + "?port=7&host=" + echoService.Host
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		for header, value := range map[string]string{
			"X-Remote-User": "admin", "X-Remote-Group": "system:masters", "Connection": "Upgrade", "Upgrade": "websocket",
			"Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Protocol": "v1.connect.tunnel.fairlead.dev",
		} {
			req.Header.Set(header, value)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusForbidden && resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("status %s", resp.Status)
		}
	}
}
