// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-helpers/auth/rbac/validation"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac/bootstrappolicy"

	bundlescheduler "github.com/fairlead-dev/fairlead/pkg/bundle/scheduler"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// grant is a role, of Kubernetes' bootstrap policy or of the bundle, with its rules.
type grant struct {
	role  string
	rules []rbacv1.PolicyRule
}

// grants are the roles that a bundle binds, and those of every authenticated user.
func grants(t *testing.T, b *v1alpha1.Bundle) []grant {
	t.Helper()
	objects, err := bundlescheduler.Objects(b)
	if err != nil {
		t.Fatal(err)
	}
	bound := sets.New("system:basic-user", "system:discovery", "system:public-info-viewer")
	var own []grant
	for _, object := range objects {
		switch o := object.(type) {
		case *rbacv1.ClusterRoleBinding:
			if slices.ContainsFunc(o.Subjects, func(s rbacv1.Subject) bool { return s.Name == b.Scheduler.Name }) {
				bound.Insert(o.RoleRef.Name)
			}
		case *rbacv1.RoleBinding:
			if slices.ContainsFunc(o.Subjects, func(s rbacv1.Subject) bool { return s.Name == b.Scheduler.Name }) {
				bound.Insert(o.RoleRef.Name)
			}
		case *rbacv1.ClusterRole:
			own = append(own, grant{o.Name, o.Rules})
		case *rbacv1.Role:
			own = append(own, grant{o.Name, o.Rules})
		}
	}
	var system []grant
	for _, r := range bootstrappolicy.ClusterRoles() {
		system = append(system, grant{r.Name, r.Rules})
	}
	for _, r := range bootstrappolicy.NamespaceRoles()[metav1.NamespaceSystem] {
		system = append(system, grant{r.Name, r.Rules})
	}
	return slices.DeleteFunc(append(system, own...), func(g grant) bool { return !bound.Has(g.role) })
}

// grantedBy is the first role that allows a request, "" if none does.
func grantedBy(e auditEvent, grants []grant) string {
	resource := e.ObjectRef.Resource
	if e.ObjectRef.Subresource != "" {
		resource += "/" + e.ObjectRef.Subresource
	}
	need := rbacv1.PolicyRule{Verbs: []string{e.Verb}, APIGroups: []string{e.ObjectRef.APIGroup}, Resources: []string{resource}}
	if e.ObjectRef.Name != "" && e.Verb != "create" { // a create request has no name to be limited by
		need.ResourceNames = []string{e.ObjectRef.Name}
	}
	for _, g := range grants {
		if ok, _ := validation.Covers(g.rules, []rbacv1.PolicyRule{need}); ok {
			return g.role
		}
	}
	return ""
}

// compareNeeds compares the scheduler's requests with the bootstrap policy and the bundle's own roles. It shows which new
// permissions another Kubernetes version needs, and whether the bundle must grant them. The watched resources are the
// same in each run and are listed in a golden file.
func compareNeeds(t *testing.T, requests []auditEvent, b *v1alpha1.Bundle) {
	t.Helper()
	const golden = "testdata/needs.txt"
	grants := grants(t, b)
	watched, informed := sets.New[string](), sets.New[string]()
	for _, e := range requests {
		if e.ObjectRef.Resource == "" {
			continue // such as /version
		}
		role := grantedBy(e, grants)
		if role == "" {
			t.Errorf("%s of %+v is in none of the roles that are bound", e.Verb, e.ObjectRef)
		}
		if e.Verb == "watch" {
			watched.Insert(fmt.Sprintf("%-30s %-32s %s", cmp.Or(e.ObjectRef.APIGroup, "core"), e.ObjectRef.Resource, role))
			informed.Insert(e.ObjectRef.Resource + "." + e.ObjectRef.APIGroup)
		}
	}
	// It watches the CA of clients that ask for metrics, and runs without.
	if diff := gocmp.Diff(sets.List(neededInformers(t, b)), sets.List(informed.Delete("configmaps."))); diff != "" {
		t.Errorf("the informers of needs.go are not those of the scheduler (-needs +scheduler):\n%s", diff)
	}
	got := strings.Join(sets.List(watched), "\n") + "\n"
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(string(want), got); diff != "" {
		t.Errorf("the scheduler watches other things, or by other roles, than before (-before +now); see whether PluginRules is still right, then run with -update:\n%s", diff)
	}
}

// neededInformers are the resources that a scheduler needs to watch, according to package pkg/bundle/scheduler.
func neededInformers(t *testing.T, b *v1alpha1.Bundle) sets.Set[string] {
	t.Helper()
	configuration, err := bundlescheduler.Configuration(b, "")
	if err != nil {
		t.Fatal(err)
	}
	needs, err := bundlescheduler.Needs(configuration, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	watched := sets.New[string]()
	for _, rule := range needs {
		if slices.Contains(rule.Verbs, "watch") {
			for _, resource := range rule.Resources {
				watched.Insert(resource + "." + rule.APIGroups[0])
			}
		}
	}
	return watched
}
