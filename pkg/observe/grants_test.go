// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/gateway"
	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/bundle/operator"
	"github.com/fairlead-dev/fairlead/pkg/bundle/tunnelapi"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
)

// createRoles creates the roles and bindings among rendered objects, and the namespaces of those.
func createRoles(t *testing.T, client kubernetes.Interface, objects []component.Object) {
	t.Helper()
	for _, object := range objects {
		var err error
		var remove func(context.Context, string, metav1.DeleteOptions) error
		if ns := object.GetNamespace(); ns != "" && ns != metav1.NamespaceSystem {
			_, _ = client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, metav1.CreateOptions{})
		}
		switch o := object.(type) {
		case *rbacv1.ClusterRole:
			_, err = client.RbacV1().ClusterRoles().Create(t.Context(), o, metav1.CreateOptions{})
			remove = client.RbacV1().ClusterRoles().Delete
		case *rbacv1.ClusterRoleBinding:
			_, err = client.RbacV1().ClusterRoleBindings().Create(t.Context(), o, metav1.CreateOptions{})
			remove = client.RbacV1().ClusterRoleBindings().Delete
		case *rbacv1.Role:
			_, err = client.RbacV1().Roles(o.Namespace).Create(t.Context(), o, metav1.CreateOptions{})
			remove = client.RbacV1().Roles(o.Namespace).Delete
		case *rbacv1.RoleBinding:
			_, err = client.RbacV1().RoleBindings(o.Namespace).Create(t.Context(), o, metav1.CreateOptions{})
			remove = client.RbacV1().RoleBindings(o.Namespace).Delete
		}
		if err != nil {
			t.Fatal(err)
		}
		if remove != nil {
			t.Cleanup(func() {
				if err := remove(context.WithoutCancel(t.Context()), object.GetName(), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
					t.Error(err)
				}
			})
		}
	}
}

// programsOfBundle are a bundle's programs as Pods: servers of two accounts, an agent, the operator, the tunnel's API server and the gateway.
func programsOfBundle(c *collector, namespace string) []Program {
	of := func(namespace, account, program string, labels map[string]string, flags ...string) corev1.Pod {
		p := pod(namespace, "x/"+program+":v1", labels, append([]string{"/" + program}, flags...)...)
		p.Name, p.Spec.ServiceAccountName = account+"-pod", account
		return p
	}
	leases := "--lease-namespace=" + namespace
	return programsOf([]corev1.Pod{
		of("kube-system", "", "konnectivity-server", nil, "--agent-namespace=kube-system", "--kubeconfig="+c.s.Bundle.Konnectivity.Server.Kubeconfig, "--enable-lease-controller", leases),
		of("kube-system", "by-hand", "konnectivity-server", nil, "--agent-namespace=kube-system", "--enable-lease-controller", leases),
		of("kube-system", "konnectivity-agent", "konnectivity-agent", nil, "--proxy-server-host=x", "--count-server-leases", leases, "--agent-identifiers=host=$(NODE_NAME)"),
		of("fairlead-system", operator.Name, operator.Name, nil),
		of("kube-system", v1alpha1.TunnelAPIName, "fairlead-apiserver", nil, "--connect=true"),
		of("kube-system", v1alpha1.GatewayName, "fairlead", gateway.Labels(), "socks5"),
		of("kube-system", "own", "fairlead", nil, "socks5"),
	}, c.s.Names)
}

// TestRightsOfBundle: a real API server is asked for the rights of all programs of a bundle, and refuses none that the bundle grants. Of a server
// with an account of its own, to which no role is bound, it refuses all; and without the agents' and the operator's bindings, exactly theirs.
func TestRightsOfBundle(t *testing.T) {
	cp := daemontest.SharedControlPlane(t)
	c := collectorOf(t, "")
	c.client = cp.Client
	b := v1alpha1.New()
	b.Konnectivity.LeaseCounting = ptr.To(true)
	b.Konnectivity.Agent.Identifiers = "host=$(NODE_NAME)"
	b.Gateway.Enabled, b.TunnelAPI.Enabled, b.TunnelAPI.Connect = ptr.To(true), ptr.To(true), ptr.To(true)
	b = b.Defaulted()
	for _, part := range []func(*v1alpha1.Bundle) ([]component.Object, error){konnectivity.Objects, gateway.Objects, tunnelapi.Objects} {
		objects, err := part(b)
		if err != nil {
			t.Fatal(err)
		}
		createRoles(t, cp.Client, objects)
	}
	objects, err := operator.Objects(operator.Options{})
	if err != nil {
		t.Fatal(err)
	}
	createRoles(t, cp.Client, objects)
	namespace := b.Konnectivity.LeaseNamespace
	c.s.Programs.Value = programsOfBundle(c, namespace)
	lease := func(verb string) string { return verb + " leases.coordination.k8s.io in " + namespace }
	server := []string{ReviewTokens, "get nodes", "list nodes", lease("get"), lease("list"), lease("create"), lease("update"), lease("patch"), lease("delete")}
	wantRefused(t, c, map[string][]string{"system:serviceaccount:kube-system:by-hand": server}, map[string]int{
		konnectivity.ServerUser: len(server), "system:serviceaccount:kube-system:konnectivity-agent": 2, "system:serviceaccount:fairlead-system:" + operator.Name: 100,
		"system:serviceaccount:kube-system:" + v1alpha1.TunnelAPIName: 8, "system:serviceaccount:kube-system:" + v1alpha1.GatewayName: 7,
	})

	if err := cp.Client.RbacV1().RoleBindings(namespace).Delete(t.Context(), konnectivity.AgentName+"-leases", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := cp.Client.RbacV1().RoleBindings(metav1.NamespaceSystem).Delete(t.Context(), operator.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	wantRefused(t, c, map[string][]string{"system:serviceaccount:kube-system:by-hand": server,
		"system:serviceaccount:kube-system:konnectivity-agent": {lease("list"), lease("watch")},
		"system:serviceaccount:fairlead-system:" + operator.Name: {
			"update configmaps named " + operator.Inventories[0] + " in kube-system", "update configmaps named " + operator.Inventories[1] + " in kube-system"},
	}, nil)
}

// wantRefused asks for the rights of all programs, until the API server knows of its roles. asked is the smallest number of rights by identity.
func wantRefused(t *testing.T, c *collector, want map[string][]string, asked map[string]int) {
	t.Helper()
	daemontest.Eventually(t, time.Minute, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		reviews, err := c.reviews(ctx)
		others, err2 := c.otherReviews(ctx)
		got, n := map[string][]string{}, map[string]int{}
		for _, r := range append(reviews, others...) {
			n[r.Identity]++
			if !r.Allowed {
				got[r.Identity] = append(got[r.Identity], r.Right)
			}
		}
		for identity, least := range asked {
			if n[identity] < least {
				err = cmp.Or(err, fmt.Errorf("%s is asked for %d rights, want at least %d: %v", identity, n[identity], least, n))
			}
		}
		if len(got) != len(want) {
			err = cmp.Or(err, fmt.Errorf("refused are %q", got))
		}
		for identity, rights := range want {
			if !slices.Equal(got[identity], rights) {
				err = cmp.Or(err, fmt.Errorf("%s is refused %q, want %q", identity, got[identity], rights))
			}
		}
		return cmp.Or(err, err2)
	})
}

// TestTunnelRights: rights follow the flags of each program, whatever the bundle says: upstream's server patches no Lease and reads no nodes.
func TestTunnelRights(t *testing.T) {
	const own, upstream = "x/konnectivity-server:v1", "registry.k8s.io/kas-network-proxy/proxy-server:v0.36.0"
	for name, tc := range map[string]struct {
		image, flag string
		want        []string
		namespace   string // of Leases
	}{
		"no flags":        {own, "", nil, ""},
		"tokens":          {own, "--agent-namespace=a", []string{ReviewTokens}, ""},
		"Leases":          {own, "--enable-lease-controller", []string{"get", "list", "create", "update", "patch", "delete"}, "kube-system"},
		"upstream Leases": {upstream, "--enable-lease-controller=true", []string{"get", "list", "create", "update", "delete"}, "kube-system"},
	} {
		c := collectorOf(t, "")
		p := pod("x", tc.image, nil, "/konnectivity-server", tc.flag)
		got, err := c.tunnelRights(programsOf([]corev1.Pod{p}, c.s.Names)[0])
		if err != nil {
			t.Fatal(err)
		}
		for i := range tc.want {
			if tc.namespace != "" {
				tc.want[i] += " leases.coordination.k8s.io in " + tc.namespace
			}
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}
