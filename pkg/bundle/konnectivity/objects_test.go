// SPDX-License-Identifier: Apache-2.0

package konnectivity_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

func objects(t *testing.T, b *v1alpha1.Bundle) []component.Object {
	t.Helper()
	out, err := konnectivity.Objects(b)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// all returns the objects of one type.
func all[T component.Object](objects []component.Object) []T {
	var out []T
	for _, o := range objects {
		if typed, ok := o.(T); ok {
			out = append(out, typed)
		}
	}
	return out
}

// rows reports the named conditions that are false.
func rows(t *testing.T, got any, checks map[string]bool) {
	t.Helper()
	failed := false
	for row, ok := range checks {
		if !ok {
			failed = true
			t.Errorf("%s does not hold", row)
		}
	}
	if failed {
		t.Logf("%+v", got)
	}
}

// TestRBAC: the user system:konnectivity-server may create TokenReviews and
// nothing else, and the agent has a ServiceAccount without roles.
// It observes KON-80, KON-81 and KON-82 of docs/requirements.md.
func TestRBAC(t *testing.T) {
	got := objects(t, v1alpha1.New())
	bindings := all[*rbacv1.ClusterRoleBinding](got)
	clusterRoles := all[*rbacv1.ClusterRole](got)
	accounts := all[*corev1.ServiceAccount](got)
	if len(bindings) != 1 || len(clusterRoles) != 1 || len(accounts) != 1 || len(all[*rbacv1.Role](got)) > 0 {
		t.Fatalf("%d bindings, %d accounts", len(bindings), len(accounts))
	}
	labels := map[string]string{"kubernetes.io/cluster-service": "true", "addonmanager.kubernetes.io/mode": "Reconcile"}
	b := bindings[0]
	rows(t, got, map[string]bool{
		"binding": b.Name == "system:konnectivity-server:tokenreviews" && maps.Equal(b.Labels, labels) &&
			b.RoleRef == (rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: b.Name}) &&
			cmp.Equal(b.Subjects, []rbacv1.Subject{{Kind: "User", APIGroup: "rbac.authorization.k8s.io", Name: "system:konnectivity-server"}}),
		"token reviews and nothing else": clusterRoles[0].Name == b.Name && cmp.Equal(clusterRoles[0].Rules, []rbacv1.PolicyRule{
			{APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"tokenreviews"}, Verbs: []string{"create"}}}),
		"agent's account": accounts[0].Name == "konnectivity-agent" && accounts[0].Namespace == "kube-system" && maps.Equal(accounts[0].Labels, labels),
	})
}

// TestManyServers: servers and agents agree on the number of servers, either by
// a fixed number or by Leases, and agents look for all of them.
// It observes KON-50 and KON-77 of docs/requirements.md.
func TestManyServers(t *testing.T) {
	args := func(c component.Component) string { return strings.Join(component.Args(c.Flags), " ") }
	one := v1alpha1.New()
	three := v1alpha1.New()
	three.Konnectivity.Server.Count = ptr.To[int32](3)
	counted := v1alpha1.New()
	counted.Konnectivity.LeaseCounting = ptr.To(true)
	for name, tc := range map[string]struct {
		b             *v1alpha1.Bundle
		server, agent string
		roles         int
	}{
		"one":   {one, "--server-count=1", "", 0},
		"three": {three, "--server-count=3", "--sync-forever=true", 0},
		"Leases": {counted, "--enable-lease-controller=true --lease-namespace=fairlead-konnectivity --lease-label=k8s-app=konnectivity-server",
			"--count-server-leases=true --server-count-source=max --lease-namespace=fairlead-konnectivity --lease-label=k8s-app=konnectivity-server --sync-forever=true", 2},
	} {
		t.Run(name, func(t *testing.T) {
			if got := strings.Join(component.Args(konnectivity.OwnServerFlags(tc.b)), " "); !strings.HasSuffix(got, tc.server) || strings.Contains(got, "server-id") {
				t.Errorf("server: %s", got)
			}
			got := args(konnectivity.Agent(tc.b))
			if !strings.HasSuffix(got, tc.agent) || (tc.agent == "" && strings.Contains(got, "sync-forever")) {
				t.Errorf("agent: %s", got)
			}
			if roles := all[*rbacv1.Role](objects(t, tc.b)); len(roles) != tc.roles {
				t.Errorf("%d roles", len(roles))
			}
		})
	}
}

// TestLeaseRights: with lease counting servers and agents may do what their programs do with the servers' Leases, in the
// namespace that the flags name and in no other.
// It observes KON-50 and KON-81 of docs/requirements.md.
func TestLeaseRights(t *testing.T) {
	b := v1alpha1.New()
	b.Konnectivity.LeaseCounting, b.Konnectivity.LeaseNamespace = ptr.To(true), "locks"
	got := objects(t, b)
	want := map[string][]string{
		"konnectivity-server-leases": {"get", "list", "create", "update", "patch", "delete"},
		"konnectivity-agent-leases":  {"list", "watch"},
	}
	for _, r := range all[*rbacv1.Role](got) {
		if r.Namespace != "locks" || !slices.Equal(r.Rules[0].Resources, []string{"leases"}) || !slices.Equal(r.Rules[0].Verbs, want[r.Name]) {
			t.Errorf("Role %s/%s: %v, want %v", r.Namespace, r.Name, r.Rules, want[r.Name])
		}
		delete(want, r.Name)
	}
	if len(want) > 0 {
		t.Errorf("no Role %v", want)
	}
	for _, r := range all[*rbacv1.RoleBinding](got) {
		if r.Namespace != "locks" || r.RoleRef.Name != r.Name {
			t.Errorf("%+v", r)
		}
	}
	for _, args := range [][]string{component.Args(konnectivity.ServerFlags(b)), component.Args(konnectivity.AgentFlags(b))} {
		if !slices.Contains(args, "--lease-namespace=locks") {
			t.Errorf("arguments %v", args)
		}
	}
}

// TestService: the default host is a headless Service that lists servers which
// are not ready, because a server becomes ready only when its first agent
// connects.
// It observes KON-77 of docs/requirements.md.
func TestService(t *testing.T) {
	b := v1alpha1.New()
	services := all[*corev1.Service](objects(t, b))
	if len(services) != 1 {
		t.Fatalf("%d Services", len(services))
	}
	s := services[0]
	rows(t, s, map[string]bool{
		"name":      s.Name+"."+s.Namespace+".svc" == b.Konnectivity.ServerHost,
		"headless":  s.Spec.ClusterIP == corev1.ClusterIPNone,
		"not ready": s.Spec.PublishNotReadyAddresses,
		"selects":   maps.Equal(s.Spec.Selector, staticServer(t, b).Labels),
		"port":      s.Spec.Ports[0].Port == b.Konnectivity.AgentPort,
	})
	b.Konnectivity.ServerHost = "192.0.2.1"
	if got := all[*corev1.Service](objects(t, b)); len(got) > 0 {
		t.Errorf("a Service beside serverHost 192.0.2.1: %v", got)
	}
}
