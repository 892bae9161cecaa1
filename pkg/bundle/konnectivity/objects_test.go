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

// rows reports the rows of the requirements that do not hold.
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

// TestRBAC: KON-80 to KON-82.
func TestRBAC(t *testing.T) {
	got := objects(t, v1alpha1.New())
	bindings := all[*rbacv1.ClusterRoleBinding](got)
	accounts := all[*corev1.ServiceAccount](got)
	if len(bindings) != 1 || len(accounts) != 1 || len(all[*rbacv1.Role](got)) > 0 {
		t.Fatalf("%d bindings, %d accounts", len(bindings), len(accounts))
	}
	labels := map[string]string{"kubernetes.io/cluster-service": "true", "addonmanager.kubernetes.io/mode": "Reconcile"}
	b := bindings[0]
	rows(t, got, map[string]bool{
		"KON-80": b.Name == "system:konnectivity-server" && maps.Equal(b.Labels, labels) &&
			b.RoleRef == (rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "system:auth-delegator"}) &&
			cmp.Equal(b.Subjects, []rbacv1.Subject{{Kind: "User", APIGroup: "rbac.authorization.k8s.io", Name: "system:konnectivity-server"}}),
		"KON-81": accounts[0].Name == "konnectivity-agent" && accounts[0].Namespace == "kube-system" && maps.Equal(accounts[0].Labels, labels),
	})
}

// TestManyServers: KON-50, KON-77, by number and by Leases.
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
		"Leases": {counted, "--enable-lease-controller=true --lease-namespace=kube-system --lease-label=k8s-app=konnectivity-server",
			"--count-server-leases=true --lease-namespace=kube-system --lease-label=k8s-app=konnectivity-server --sync-forever=true", 2},
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
	verbs := map[string][]string{}
	for _, r := range all[*rbacv1.Role](objects(t, counted)) {
		verbs[r.Name] = r.Rules[0].Verbs
	}
	if got := verbs["konnectivity-agent-leases"]; !slices.Contains(got, "list") || !slices.Contains(got, "watch") || slices.Contains(got, "update") {
		t.Errorf("agent may %v", got)
	}
	for _, verb := range []string{"create", "get", "list", "watch", "update", "delete"} {
		if !slices.Contains(verbs["konnectivity-server-leases"], verb) {
			t.Errorf("server may not %s", verb)
		}
	}
}

// TestService: the default host is a headless Service that lists servers which
// are not ready, since a server is ready by its first agent only (KON-41).
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
