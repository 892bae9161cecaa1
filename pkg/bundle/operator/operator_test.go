// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	psaapi "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/crds"
	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/operator"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

func objects(t *testing.T, o operator.Options) []component.Object {
	t.Helper()
	list, err := operator.Objects(o)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func kinds(list []component.Object) (out []string) {
	for _, o := range list {
		out = append(out, strings.TrimSpace(o.GetObjectKind().GroupVersionKind().Kind+" "+o.GetNamespace()+"/"+o.GetName()))
	}
	return out
}

// TestDefinitionFiles: the files of the definitions name the webhook of the default operator, so that to apply them again
// changes nothing.
func TestDefinitionFiles(t *testing.T) {
	files, err := crds.All()
	if err != nil {
		t.Fatal(err)
	}
	rendered, err := operator.Definitions(operator.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i, file := range files {
		if diff := cmp.Diff(rendered[i].Spec, file.Spec); diff != "" {
			t.Errorf("%s (-rendered +file):\n%s", file.Name, diff)
		}
	}
}

// TestObjects: the definitions come before the operator that reconciles their objects, and every
// namespaced object is in the namespace that was asked for.
func TestObjects(t *testing.T) {
	want := []string{
		"Namespace /fairlead-system",
		"CustomResourceDefinition /bundles.fairlead.dev", "CustomResourceDefinition /schedulerprofiles.fairlead.dev", "CustomResourceDefinition /tunnelpools.fairlead.dev",
		"ServiceAccount fairlead-system/fairlead-operator",
		"ClusterRole /fairlead-operator", "ClusterRoleBinding /fairlead-operator",
		"Role kube-system/fairlead-operator", "RoleBinding kube-system/fairlead-operator",
		"Role fairlead-system/fairlead-operator", "RoleBinding fairlead-system/fairlead-operator",
		"ClusterRole /fairlead-schedulerprofiles-viewer",
		"Service fairlead-system/fairlead-operator", "NetworkPolicy fairlead-system/fairlead-operator",
		"PodDisruptionBudget fairlead-system/fairlead-operator", "Deployment fairlead-system/fairlead-operator",
	}
	if diff := cmp.Diff(want, kinds(objects(t, operator.Options{}))); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	alone := kinds(objects(t, operator.Options{Namespace: "kube-system", Replicas: ptr.To(int32(1))}))
	if slices.ContainsFunc(alone, func(s string) bool {
		return strings.Contains(s, "fairlead-system") || strings.HasPrefix(s, "PodDisruptionBudget") || strings.HasPrefix(s, "Namespace")
	}) {
		t.Errorf("one replica in kube-system: %v", alone)
	}
	if len(slices.Compact(slices.Sorted(slices.Values(alone)))) != len(alone) {
		t.Errorf("an object is there twice: %v", alone)
	}
	for _, bad := range []operator.Options{{Namespace: "A"}, {Image: "a b"}, {Replicas: ptr.To(int32(0))}} {
		if list, err := operator.Objects(bad); err == nil {
			t.Errorf("%+v renders %v", bad, kinds(list))
		}
	}
}

// TestNoKeys: what is rendered has no key and no CA, and the definitions that convert name the
// Service that is rendered.
func TestNoKeys(t *testing.T) {
	converts := 0
	for _, o := range objects(t, operator.Options{Namespace: "ns"}) {
		if o.GetObjectKind().GroupVersionKind().Kind == "Secret" {
			t.Errorf("Secret %s is rendered", o.GetName())
		}
		crd, ok := o.(*apiextensionsv1.CustomResourceDefinition)
		if !ok || crd.Spec.Conversion == nil {
			continue
		}
		converts++
		if ca := crd.Spec.Conversion.Webhook.ClientConfig.CABundle; ca != nil {
			t.Errorf("%s has the CA %s, which the operator makes", crd.Name, ca)
		}
		if s := crd.Spec.Conversion.Webhook.ClientConfig.Service; s.Namespace != "ns" || s.Name != "fairlead-operator" || *s.Port != 443 || *s.Path != "/convert" {
			t.Errorf("%s calls %+v", crd.Name, s)
		}
	}
	if converts != 2 {
		t.Errorf("%d definitions convert, want those of Bundle and TunnelPool", converts)
	}
}

// TestRestricted: the Pods are admitted into the namespace, whose level is the strictest.
func TestRestricted(t *testing.T) {
	list := objects(t, operator.Options{})
	level, errs := psaapi.PolicyToEvaluate(list[0].GetLabels(), psaapi.Policy{})
	if len(errs) > 0 || level.Enforce.Level != psaapi.LevelRestricted {
		t.Fatalf("labels %v: %v", list[0].GetLabels(), errs.ToAggregate())
	}
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	template := list[len(list)-1].(*appsv1.Deployment).Spec.Template
	for _, r := range evaluator.EvaluatePod(level.Enforce, &template.ObjectMeta, &template.Spec) {
		if !r.Allowed {
			t.Errorf("%s: %s", r.ForbiddenReason, r.ForbiddenDetail)
		}
	}
}

// TestPorts: each address at which the program listens is the container's port of one name, no two
// share a number, and the Service, the probes and the NetworkPolicy lead to these ports: the API
// server to the webhook, Prometheus to the metrics, the kubelet to health.
// It observes VER-62 and VER-63 of docs/requirements.md.
func TestPorts(t *testing.T) {
	list := objects(t, operator.Options{})
	container := list[len(list)-1].(*appsv1.Deployment).Spec.Template.Spec.Containers[0]
	ports, numbers := map[string]int32{}, map[int32]bool{}
	for _, p := range container.Ports {
		ports[p.Name], numbers[p.ContainerPort] = p.ContainerPort, true
	}
	flags := map[string]string{}
	for _, arg := range container.Args {
		name, value, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		flags[name] = value
	}
	names := map[string]string{"webhook-bind-address": "webhook", "metrics-bind-address": "metrics", "health-probe-bind-address": "health"}
	if len(ports) != len(names) || len(numbers) != len(names) {
		t.Errorf("the container has ports %v, want one for each of %v", container.Ports, names)
	}
	for flag, name := range names {
		if want := fmt.Sprintf(":%d", ports[name]); ports[name] == 0 || flags[flag] != want {
			t.Errorf("--%s=%s, but the container's port %s is %s", flag, flags[flag], name, want)
		}
	}
	for path, probe := range map[string]*corev1.Probe{"/healthz": container.LivenessProbe, "/readyz": container.ReadinessProbe} {
		if get := probe.HTTPGet; get.Port != intstr.FromInt32(ports["health"]) || get.Path != path {
			t.Errorf("a probe asks %s at port %s, want %s at %d", get.Path, get.Port.String(), path, ports["health"])
		}
	}
	found := 0
	for _, o := range list {
		switch o := o.(type) {
		case *corev1.Service:
			found++
			got := map[string]string{}
			for _, p := range o.Spec.Ports {
				got[p.Name] = fmt.Sprintf("%d to %s", p.Port, p.TargetPort.String())
			}
			want := map[string]string{"webhook": fmt.Sprintf("443 to %d", ports["webhook"]), "metrics": fmt.Sprintf("%[1]d to %[1]d", ports["metrics"])}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("Service: -want +got\n%s", diff)
			}
		case *networkingv1.NetworkPolicy:
			found++
			allowed := map[int32]bool{}
			for _, rule := range o.Spec.Ingress {
				for _, p := range rule.Ports {
					allowed[p.Port.IntVal] = true
				}
			}
			if diff := cmp.Diff(numbers, allowed); diff != "" {
				t.Errorf("NetworkPolicy: -want +got\n%s", diff)
			}
		}
	}
	if found != 2 {
		t.Errorf("%d objects that lead to ports, want a Service and a NetworkPolicy", found)
	}
}

// TestExactRights: no wildcard, nothing that lets the operator take rights which it lacks, and no
// Secret but those that it makes.
func TestExactRights(t *testing.T) {
	for _, o := range objects(t, operator.Options{}) {
		for _, r := range rulesOf(o) {
			for _, s := range slices.Concat(r.APIGroups, r.Resources, r.Verbs) {
				if strings.Contains(s, "*") || s == "escalate" || s == "impersonate" {
					t.Errorf("%s has %+v", o.GetName(), r)
				}
			}
			if slices.Contains(r.Verbs, "bind") && len(r.ResourceNames) == 0 {
				t.Errorf("%s binds any role: %+v", o.GetName(), r)
			}
			writes := slices.ContainsFunc(r.Verbs, func(v string) bool { return !slices.Contains([]string{"get", "list", "watch"}, v) })
			for _, resource := range []string{"apiservices", "flowschemas", "prioritylevelconfigurations", "customresourcedefinitions", "customresourcedefinitions/status"} {
				if slices.Contains(r.Resources, resource) && writes && len(r.ResourceNames) == 0 {
					t.Errorf("%s writes all %s: %+v", o.GetName(), resource, r)
				}
			}
			// A Secret's first version has no name yet in the request. In the operator's own namespace only.
			own := o.GetNamespace() == operator.DefaultNamespace && slices.Equal(r.Verbs, []string{"create"})
			if slices.Contains(r.Resources, "secrets") && len(r.ResourceNames) == 0 && !own {
				t.Errorf("%s in namespace %q has rights on all Secrets: %+v", o.GetName(), o.GetNamespace(), r)
			}
		}
	}
}

var update = flag.Bool("update", false, "write the golden file")

// TestRights: the rights are those of testdata/rights.txt, so that a change of them shows in review.
// It observes EXT-02 of docs/requirements.md.
func TestRights(t *testing.T) {
	var text strings.Builder
	for _, o := range objects(t, operator.Options{}) {
		for _, r := range rulesOf(o) {
			line := fmt.Sprintf("%s: %s %s", strings.TrimPrefix(o.GetNamespace()+"/"+o.GetName(), "/"), strings.Join(r.Verbs, ","), strings.Join(r.Resources, ","))
			if group := strings.Join(r.APIGroups, ","); group != "" {
				line += " of " + group
			}
			if len(r.ResourceNames) > 0 {
				line += " named " + strings.Join(r.ResourceNames, ",")
			}
			text.WriteString(line + strings.Repeat(" at "+strings.Join(r.NonResourceURLs, ","), min(1, len(r.NonResourceURLs))) + "\n")
		}
	}
	const golden = "testdata/rights.txt"
	if *update {
		if err := os.WriteFile(golden, []byte(text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), text.String()); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func rulesOf(o component.Object) []rbacv1.PolicyRule {
	switch r := o.(type) {
	case *rbacv1.ClusterRole:
		return r.Rules
	case *rbacv1.Role:
		return r.Rules
	}
	return nil
}

// TestGrants: the operator has every right that a role of a bundle grants, and may bind every
// other role that a bundle binds; for the bundles of package bundle's tests and one with all
// parts. Kubernetes would refuse to let it create these roles otherwise.
func TestGrants(t *testing.T) {
	role, err := operator.ClusterRole()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("../testdata/config/*.yaml")
	if err != nil || len(files) < 5 {
		t.Fatalf("%v, %v", files, err)
	}
	bundles := []*v1alpha1.Bundle{{Gateway: v1alpha1.Gateway{Enabled: ptr.To(true)}}, {Gateway: v1alpha1.Gateway{Enabled: ptr.To(true), Form: v1alpha1.FormStaticPod}}}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		b, err := bundle.Load(data)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		bundles = append(bundles, b)
	}
	roles := 0
	for i, b := range bundles {
		out, err := bundle.Render(b)
		if err != nil {
			t.Fatal(err)
		}
		own := map[string]bool{}
		for _, o := range out.Objects {
			kind := o.GetObjectKind().GroupVersionKind().Kind
			own[kind+" "+o.GetName()] = true
			for _, rule := range rulesOf(o) {
				roles++
				for _, missing := range lacks(role.Rules, rule) {
					t.Errorf("bundle %d: %s %s grants %s", i, kind, o.GetName(), missing)
				}
			}
			var ref rbacv1.RoleRef
			switch binding := o.(type) {
			case *rbacv1.ClusterRoleBinding:
				ref = binding.RoleRef
			case *rbacv1.RoleBinding:
				ref = binding.RoleRef
			default:
				continue
			}
			if own[ref.Kind+" "+ref.Name] {
				continue
			}
			bind := rbacv1.PolicyRule{APIGroups: []string{rbacv1.GroupName}, Resources: []string{strings.ToLower(ref.Kind) + "s"}, ResourceNames: []string{ref.Name}, Verbs: []string{"bind"}}
			for _, missing := range lacks(role.Rules, bind) {
				t.Errorf("bundle %d: %s %s needs %s", i, kind, o.GetName(), missing)
			}
		}
	}
	if roles < 20 {
		t.Errorf("the test has looked at %d rules only", roles)
	}
}

// lacks lists what rule grants and rules do not.
func lacks(rules []rbacv1.PolicyRule, rule rbacv1.PolicyRule) (out []string) {
	names := rule.ResourceNames
	if len(names) == 0 {
		names = []string{""}
	}
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				for _, name := range names {
					if !slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool {
						return slices.Contains(r.APIGroups, group) && slices.Contains(r.Resources, resource) && slices.Contains(r.Verbs, verb) &&
							(len(r.ResourceNames) == 0 || slices.Contains(r.ResourceNames, name))
					}) {
						out = append(out, fmt.Sprintf("%s %s.%s %s", verb, resource, group, name))
					}
				}
			}
		}
	}
	return out
}
