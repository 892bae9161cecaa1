// SPDX-License-Identifier: Apache-2.0

package bundle_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration"
	apiregistrationvalidation "k8s.io/kube-aggregator/pkg/apis/apiregistration/validation"
	aggregatorscheme "k8s.io/kube-aggregator/pkg/apiserver/scheme"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	podutil "k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/admissionregistration"
	_ "k8s.io/kubernetes/pkg/apis/admissionregistration/install"
	admissionvalidation "k8s.io/kubernetes/pkg/apis/admissionregistration/validation"
	"k8s.io/kubernetes/pkg/apis/apps"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	appsvalidation "k8s.io/kubernetes/pkg/apis/apps/validation"
	"k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	corevalidation "k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/kubernetes/pkg/apis/flowcontrol"
	_ "k8s.io/kubernetes/pkg/apis/flowcontrol/install"
	flowcontrolvalidation "k8s.io/kubernetes/pkg/apis/flowcontrol/validation"
	"k8s.io/kubernetes/pkg/apis/networking"
	_ "k8s.io/kubernetes/pkg/apis/networking/install"
	networkingvalidation "k8s.io/kubernetes/pkg/apis/networking/validation"
	"k8s.io/kubernetes/pkg/apis/policy"
	_ "k8s.io/kubernetes/pkg/apis/policy/install"
	policyvalidation "k8s.io/kubernetes/pkg/apis/policy/validation"
	"k8s.io/kubernetes/pkg/apis/rbac"
	_ "k8s.io/kubernetes/pkg/apis/rbac/install"
	rbacvalidation "k8s.io/kubernetes/pkg/apis/rbac/validation"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac/bootstrappolicy"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/bundle/scheduler"
)

// decodeStrict reads a manifest as the API server does with strict field
// validation: unknown and duplicate fields are errors, defaults are applied.
func decodeStrict(t *testing.T, data []byte) runtime.Object {
	t.Helper()
	codecs := serializer.NewCodecFactory(legacyscheme.Scheme, serializer.EnableStrict)
	if strings.Contains(string(data), "\nkind: APIService\n") { // of kube-apiserver's aggregator, which has a scheme of its own
		codecs = serializer.NewCodecFactory(aggregatorscheme.Scheme, serializer.EnableStrict)
	}
	obj, _, err := codecs.UniversalDecoder().Decode(data, nil, nil)
	if err != nil {
		t.Fatalf("Kubernetes does not read it: %v\n%s", err, data)
	}
	return obj
}

// validate runs Kubernetes' own validation for the object's kind.
func validate(t *testing.T, obj runtime.Object) field.ErrorList {
	t.Helper()
	switch o := obj.(type) {
	case *core.Namespace:
		return corevalidation.ValidateNamespace(o)
	case *core.ServiceAccount:
		return corevalidation.ValidateServiceAccount(o)
	case *core.ConfigMap:
		return corevalidation.ValidateConfigMap(o)
	case *core.Service:
		// The API server sets these before it validates.
		policy := core.IPFamilyPolicySingleStack
		o.Spec.IPFamilyPolicy, o.Spec.IPFamilies = &policy, []core.IPFamily{core.IPv4Protocol}
		o.Spec.ClusterIPs = []string{o.Spec.ClusterIP}
		return corevalidation.ValidateServiceCreate(o)
	case *core.Pod:
		return corevalidation.ValidatePodCreate(o, podutil.GetValidationOptionsFromPodSpecAndMeta(&o.Spec, nil, &o.ObjectMeta, nil))
	case *apps.Deployment:
		return appsvalidation.ValidateDeployment(o, podutil.GetValidationOptionsFromPodTemplate(&o.Spec.Template, nil))
	case *apps.DaemonSet:
		return appsvalidation.ValidateDaemonSet(o, podutil.GetValidationOptionsFromPodTemplate(&o.Spec.Template, nil))
	case *policy.PodDisruptionBudget:
		return policyvalidation.ValidatePodDisruptionBudget(o, policyvalidation.PodDisruptionBudgetValidationOptions{})
	case *networking.NetworkPolicy:
		return networkingvalidation.ValidateNetworkPolicy(o, networkingvalidation.NetworkPolicyValidationOptions{})
	case *rbac.Role:
		return rbacvalidation.ValidateRole(o)
	case *rbac.RoleBinding:
		return rbacvalidation.ValidateRoleBinding(o)
	case *admissionregistration.MutatingAdmissionPolicy:
		return admissionvalidation.ValidateMutatingAdmissionPolicy(o)
	case *admissionregistration.MutatingAdmissionPolicyBinding:
		return admissionvalidation.ValidateMutatingAdmissionPolicyBinding(o)
	case *rbac.ClusterRole:
		return rbacvalidation.ValidateClusterRole(o, rbacvalidation.ClusterRoleValidationOptions{})
	case *rbac.ClusterRoleBinding:
		return rbacvalidation.ValidateClusterRoleBinding(o)
	case *flowcontrol.FlowSchema:
		return flowcontrolvalidation.ValidateFlowSchema(o)
	case *flowcontrol.PriorityLevelConfiguration:
		return flowcontrolvalidation.ValidatePriorityLevelConfiguration(o, flowcontrolv1.SchemeGroupVersion, flowcontrolvalidation.PriorityLevelValidationOptions{})
	case *apiregistration.APIService:
		return apiregistrationvalidation.ValidateAPIService(o)
	}
	t.Fatalf("no validation known for %T", obj)
	return nil
}

func encode(t *testing.T, o component.Object) []byte {
	t.Helper()
	data, err := bundle.EncodeYAML(o)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestObjectsAreValid: every object passes Kubernetes' strict decoder and its
// validation.
// It observes KON-82 of docs/requirements.md.
func TestObjectsAreValid(t *testing.T) {
	for name, b := range variants(t) {
		t.Run(name, func(t *testing.T) {
			for _, o := range render(t, b).Objects {
				obj := decodeStrict(t, encode(t, o))
				if errs := validate(t, obj); len(errs) > 0 {
					t.Errorf("%T %s: %v", o, o.GetName(), errs.ToAggregate())
				}
			}
		})
	}
}

// TestValidationCanFail shows that the test above notices a bad object.
func TestValidationCanFail(t *testing.T) {
	pod, err := component.StaticPod(konnectivity.Server(load(t, "")))
	if err != nil {
		t.Fatal(err)
	}
	pod.Spec.Containers[0].Ports[0].HostPort = 1
	if errs := validate(t, decodeStrict(t, encode(t, pod))); len(errs) == 0 {
		t.Error("a host port other than the container's passed on the host network")
	}
}

// TestStaticPodsAreValid: the static Pods pass validation, and refer to no
// ServiceAccount, ConfigMap or other API object.
// It observes SCHED-26 of docs/requirements.md.
func TestStaticPodsAreValid(t *testing.T) {
	pods := 0
	for name, b := range variants(t) {
		out := render(t, b)
		for _, f := range slices.Concat(out.HostFiles, out.SchedulerFiles) {
			if filepath.Dir(f.Path) != b.ControlPlane.ManifestsDir {
				continue
			}
			pods++
			pod := decodeStrict(t, f.Data).(*core.Pod)
			if errs := validate(t, pod); len(errs) > 0 {
				t.Errorf("%s: %v", name, errs.ToAggregate())
			}
			if _, resource, err := podutil.HasAPIObjectReference(pod); err != nil || resource != "" {
				t.Errorf("%s: the kubelet would refuse it for %q, error %v", name, resource, err)
			}
			if f.Mode != 0o600 {
				t.Errorf("%s: mode %o, want 600", name, f.Mode)
			}
		}
	}
	if pods < 3 {
		t.Errorf("only %d static Pods were looked at", pods)
	}
}

// TestStaticScheduler: the kubelet accepts the scheduler as a static Pod with
// hostPath volumes. Its flags and its configuration file name the same
// kubeconfig.
// It observes SCHED-26 of docs/requirements.md.
func TestStaticScheduler(t *testing.T) {
	const kubeconfig = "/etc/kubernetes/my-scheduler.conf"
	b := load(t, "scheduler: {form: StaticPod}\n")
	at := writeFiles(t, render(t, b).SchedulerFiles)
	pods := kubeletReads(t, at("/etc/kubernetes/manifests"))
	if len(pods) != 1 {
		t.Fatalf("the kubelet sees %d Pods", len(pods))
	}
	spec := pods[0].Spec
	for _, flag := range []string{"--authentication-kubeconfig=", "--authorization-kubeconfig="} {
		if !slices.Contains(spec.Containers[0].Args, flag+kubeconfig) {
			t.Errorf("arguments %q lack %s", spec.Containers[0].Args, flag+kubeconfig)
		}
	}
	for _, m := range spec.Containers[0].VolumeMounts {
		if !m.ReadOnly || (m.MountPath != kubeconfig && m.MountPath != filepath.Dir(scheduler.ConfigPath(b))) {
			t.Errorf("mount %+v", m)
		}
	}
}

// TestNoSystemRole: no object replaces a role or binding of the Kubernetes
// bootstrap policy, and every role that we bind is one of these or our own.
// It observes SCHED-33 of docs/requirements.md.
// It also observes OLD-03 of docs/requirements.md.
func TestNoSystemRole(t *testing.T) {
	system := map[string]bool{}
	for _, r := range bootstrappolicy.ClusterRoles() {
		system["ClusterRole/"+r.Name] = true
	}
	for _, r := range bootstrappolicy.NamespaceRoles()[metav1.NamespaceSystem] {
		system["Role/"+r.Name] = true
	}
	taken := map[string]bool{}
	for _, r := range bootstrappolicy.ClusterRoleBindings() {
		taken[r.Name] = true
	}
	for name, b := range variants(t) {
		own := map[string]bool{}
		for _, o := range render(t, b).Objects {
			if o.GetName() == "system:kube-scheduler" || system[o.GetObjectKind().GroupVersionKind().Kind+"/"+o.GetName()] || taken[o.GetName()] {
				t.Errorf("%s: %T %s is Kubernetes' own", name, o, o.GetName())
			}
			switch o := decodeStrict(t, encode(t, o)).(type) {
			case *rbac.Role:
				own["Role/"+o.Name] = true
			case *rbac.ClusterRole:
				own["ClusterRole/"+o.Name] = true
			case *rbac.RoleBinding:
				if ref := o.RoleRef.Kind + "/" + o.RoleRef.Name; !system[ref] && !own[ref] {
					t.Errorf("%s: %s binds unknown %s", name, o.Name, ref)
				}
			case *rbac.ClusterRoleBinding:
				if ref := o.RoleRef.Kind + "/" + o.RoleRef.Name; !system[ref] && !own[ref] {
					t.Errorf("%s: %s binds unknown %s", name, o.Name, ref)
				}
			}
		}
	}
}

// writeFiles writes rendered files below a new directory and returns a mapping of
// their paths.
func writeFiles(t *testing.T, files []bundle.File) func(string) string {
	t.Helper()
	root := t.TempDir()
	at := func(p string) string { return filepath.Join(root, p) }
	for _, f := range files {
		if err := os.MkdirAll(filepath.Dir(at(f.Path)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at(f.Path), f.Data, os.FileMode(f.Mode)); err != nil {
			t.Fatal(err)
		}
	}
	return at
}
