// SPDX-License-Identifier: Apache-2.0

package bundle_test

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	psaapi "k8s.io/pod-security-admission/api"
	psapolicy "k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/bundle/scheduler"
)

// podSecurity are the rules of a level that a Pod breaks.
func podSecurity(t *testing.T, level psaapi.Level, meta *metav1.ObjectMeta, spec *corev1.PodSpec) []string {
	t.Helper()
	evaluator, err := psapolicy.NewEvaluator(psapolicy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, result := range evaluator.EvaluatePod(psaapi.LevelVersion{Level: level, Version: psaapi.LatestVersion()}, meta, spec) {
		if !result.Allowed {
			out = append(out, result.ForbiddenReason)
		}
	}
	return out
}

// TestPodSecurity: scheduler and agents meet level restricted. The server cannot
// (host network, host paths, root, a liveness probe of 127.0.0.1): it violates
// these rules and no others.
func TestPodSecurity(t *testing.T) {
	forbidden := func(meta *metav1.ObjectMeta, spec *corev1.PodSpec) []string {
		return podSecurity(t, psaapi.LevelRestricted, meta, spec)
	}
	b := load(t, "")
	for _, c := range []component.Component{scheduler.Component(b), konnectivity.Agent(b)} {
		d := component.Deployment(c)
		if got := forbidden(&d.Spec.Template.ObjectMeta, &d.Spec.Template.Spec); len(got) > 0 {
			t.Errorf("%s is not restricted: %v", c.Name, got)
		}
	}
	pod, err := component.StaticPod(konnectivity.Server(b))
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(forbidden(&pod.ObjectMeta, &pod.Spec), "; ")
	const want = "host namespaces; hostPort; probe or lifecycle host; restricted volume types; runAsNonRoot != true; runAsUser=0"
	if got != want {
		t.Errorf("the server breaks\n%s\nwant no more than\n%s", got, want)
	}
}

// renderedPods are the Pods that a rendered bundle brings into its namespace, the
// mirror Pods of static ones included.
func renderedPods(t *testing.T, out *bundle.Output) []corev1.PodTemplateSpec {
	t.Helper()
	var pods []corev1.PodTemplateSpec
	for _, o := range out.Objects {
		switch w := o.(type) {
		case *appsv1.Deployment:
			pods = append(pods, w.Spec.Template)
		case *appsv1.DaemonSet:
			pods = append(pods, w.Spec.Template)
		}
	}
	for _, f := range append(out.HostFiles, out.SchedulerFiles...) {
		pod := &corev1.Pod{}
		if err := yaml.Unmarshal(f.Data, pod); err == nil && pod.Kind == "Pod" {
			pods = append(pods, corev1.PodTemplateSpec{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec})
		}
	}
	return pods
}

// TestLeaseNamespace: the namespace of the servers' Leases is rendered once if
// Leases are counted, unless every cluster has that namespace. No Pod on the host
// network is placed in it.
func TestLeaseNamespace(t *testing.T) {
	for config, want := range map[string][]string{
		"":                                    nil,
		"konnectivity: {leaseCounting: true}": {"fairlead-konnectivity restricted"},
		"konnectivity: {leaseCounting: true, leaseNamespace: kube-system}":                       nil,
		"konnectivity: {leaseCounting: true, leaseNamespace: kube-node-lease}":                   nil,
		"namespace: own\nkonnectivity: {leaseCounting: true, leaseNamespace: own}":               {"own privileged"},
		"namespace: own\nkonnectivity: {leaseCounting: true}":                                    {"own privileged", "fairlead-konnectivity restricted"},
		"namespace: own\nkonnectivity: {enabled: false, leaseCounting: true, leaseNamespace: a}": {"own restricted"},
	} {
		var got []string
		for _, o := range render(t, load(t, config)).Objects {
			if ns, ok := o.(*corev1.Namespace); ok {
				got = append(got, ns.Name+" "+ns.Labels[psaapi.EnforceLevelLabel])
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q: namespaces %q, want %q", config, got, want)
		}
	}
}

// TestNamespaceAdmitsItsPods: a namespace of the bundle's own has the strictest
// level at which every Pod of the bundle is admitted.
func TestNamespaceAdmitsItsPods(t *testing.T) {
	for name, tc := range map[string]struct {
		config string
		pods   int
		want   psaapi.Level
	}{
		"static server":    {"namespace: own\n", 3, psaapi.LevelPrivileged},
		"DaemonSet server": {"namespace: own\nkonnectivity: {server: {form: DaemonSet}}\n", 3, psaapi.LevelPrivileged},
		"scheduler alone":  {"namespace: own\nkonnectivity: {enabled: false}\n", 1, psaapi.LevelRestricted},
		"static scheduler": {"namespace: own\nscheduler: {form: StaticPod}\nkonnectivity: {enabled: false}\n", 1, psaapi.LevelPrivileged},
	} {
		t.Run(name, func(t *testing.T) {
			out := render(t, load(t, tc.config))
			ns, ok := out.Objects[0].(*corev1.Namespace)
			if !ok || ns.Name != "own" {
				t.Fatalf("the first object is %T", out.Objects[0])
			}
			level, errs := psaapi.PolicyToEvaluate(ns.Labels, psaapi.Policy{})
			if len(errs) > 0 || level.Enforce.Level != tc.want {
				t.Errorf("labels %v enforce %q, want %q: %v", ns.Labels, level.Enforce.Level, tc.want, errs.ToAggregate())
			}
			pods := renderedPods(t, out)
			if len(pods) != tc.pods {
				t.Errorf("%d Pods, want %d", len(pods), tc.pods)
			}
			strictest := psaapi.LevelRestricted
			for _, p := range pods {
				if refused := podSecurity(t, level.Enforce.Level, &p.ObjectMeta, &p.Spec); len(refused) > 0 {
					t.Errorf("Pod %v is refused: %v", p.Labels, refused)
				}
				if len(podSecurity(t, psaapi.LevelBaseline, &p.ObjectMeta, &p.Spec)) > 0 {
					strictest = psaapi.LevelPrivileged
				}
			}
			if strictest != tc.want {
				t.Errorf("the Pods need %q, want %q", strictest, tc.want)
			}
		})
	}
}
