// SPDX-License-Identifier: Apache-2.0

package bundle_test

import (
	"context"
	"encoding/json"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
)

// controlPlane is a real etcd and kube-apiserver.
func controlPlane(t *testing.T) (kubernetes.Interface, dynamic.Interface) {
	t.Helper()
	plane := daemontest.StartControlPlane(t)
	config, err := clientcmd.BuildConfigFromFlags("", plane.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1 // the default is five requests a second
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return plane.Client, client
}

// TestAPIServer gives the bundle to a real API server: it takes every object with
// strict field validation, a second time without a change, and grants the rights
// that the programs need and not more.
// It observes SCHED-33 of docs/requirements.md.
// It also observes OLD-03 of docs/requirements.md.
func TestAPIServer(t *testing.T) {
	client, dyn := controlPlane(t)
	ctx := t.Context()
	before := systemRole(t, client)
	createNamespace(t, client, "locks") // of the non-default Lease: a Lease needs an existing namespace
	for name, b := range variants(t) {
		t.Run("apply "+name, func(t *testing.T) {
			out := render(t, b)
			for _, o := range out.Objects {
				first := apply(t, dyn, o)
				second := apply(t, dyn, o)
				changed := first.GetResourceVersion() != second.GetResourceVersion()
				if slices.Contains([]string{"FlowSchema", "PriorityLevelConfiguration", "APIService"}, first.GetKind()) {
					// The API server itself writes their status in between.
					changed = first.GetGeneration() != second.GetGeneration() || !equality.Semantic.DeepEqual(first.Object["spec"], second.Object["spec"])
				}
				if changed {
					t.Errorf("%s %s changes when applied again", first.GetKind(), first.GetName())
				}
				admitPod(t, client, o)
			}
			admitMirrorPod(t, client, out)
		})
	}
	if diff := cmp.Diff(before, systemRole(t, client)); diff != "" {
		t.Errorf("the system role changed:\n%s", diff)
	}
	t.Run("rights", func(t *testing.T) { checkRights(ctx, t, client) })
}

func systemRole(t *testing.T, client kubernetes.Interface) any {
	t.Helper()
	role, err := client.RbacV1().ClusterRoles().Get(t.Context(), "system:kube-scheduler", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return role.Rules
}

func createNamespace(t *testing.T, client kubernetes.Interface, name string) {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_, err := client.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
}

func apply(t *testing.T, client dynamic.Interface, o component.Object) *unstructured.Unstructured {
	t.Helper()
	manifest, err := bundle.Manifest(o)
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(manifest)
	if err != nil {
		t.Fatal(err)
	}
	resource, _ := meta.UnsafeGuessKindToResource(o.GetObjectKind().GroupVersionKind())
	options := metav1.PatchOptions{FieldManager: "test", FieldValidation: metav1.FieldValidationStrict}
	var on dynamic.ResourceInterface = client.Resource(resource)
	if ns := o.GetNamespace(); ns != "" {
		on = client.Resource(resource).Namespace(ns)
	}
	out, err := on.Patch(t.Context(), o.GetName(), types.ApplyPatchType, data, options)
	if err != nil {
		t.Fatalf("%T %s: %v", o, o.GetName(), err)
	}
	return out
}

// admitPod sends the Pod of a workload through admission, which knows things that
// validation does not, such as priority classes and service accounts.
func admitPod(t *testing.T, client kubernetes.Interface, o component.Object) {
	t.Helper()
	var template corev1.PodTemplateSpec
	switch w := o.(type) {
	case *appsv1.Deployment:
		template = w.Spec.Template
	case *appsv1.DaemonSet:
		template = w.Spec.Template
	default:
		return
	}
	createServiceAccount(t, client, o.GetNamespace(), template.Spec.ServiceAccountName)
	pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	pod.Name = o.GetName()
	_, err := client.CoreV1().Pods(o.GetNamespace()).Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		t.Errorf("the Pod of %s: %v", o.GetName(), err)
	}
}

// admitMirrorPod sends the static server's Pod through admission as the kubelet
// does: if it were refused, the Service would not list the server.
func admitMirrorPod(t *testing.T, client kubernetes.Interface, out *bundle.Output) {
	t.Helper()
	for _, f := range out.HostFiles {
		pod := &corev1.Pod{}
		if err := yaml.Unmarshal(f.Data, pod); err != nil || pod.Kind != "Pod" {
			continue
		}
		pod.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "hash"}
		pod.Spec.NodeName = "control-plane"
		_, err := client.CoreV1().Pods(pod.Namespace).Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			t.Errorf("the mirror Pod of %s: %v", f.Path, err)
		}
	}
}

// createServiceAccount creates the default ServiceAccount of a namespace. There
// is no controller here that would create it.
func createServiceAccount(t *testing.T, client kubernetes.Interface, namespace, name string) {
	t.Helper()
	if name != "" {
		return // rendered
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	_, err := client.CoreV1().ServiceAccounts(namespace).Create(t.Context(), account, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
}

// checkRights asks the API server's own authorizer about the default bundle's
// identities.
func checkRights(ctx context.Context, t *testing.T, client kubernetes.Interface) {
	t.Helper()
	const (
		scheduler = "system:serviceaccount:kube-system:my-scheduler"
		server    = "system:konnectivity-server"
		agent     = "system:serviceaccount:kube-system:konnectivity-agent"
	)
	at := func(verb, group, resource, name string) authorizationv1.ResourceAttributes {
		return authorizationv1.ResourceAttributes{
			Namespace: v1alpha1.DefaultNamespace, Verb: verb, Group: group, Resource: resource, Name: name,
		}
	}
	const leases = "coordination.k8s.io"
	counting := func(verb, name string) authorizationv1.ResourceAttributes {
		a := at(verb, leases, "leases", name)
		a.Namespace = v1alpha1.DefaultLeaseNamespace
		return a
	}
	for name, tc := range map[string]struct {
		user string
		what authorizationv1.ResourceAttributes
		want bool
	}{
		"create a Lease":               {scheduler, at("create", leases, "leases", ""), true},
		"get the own Lease":            {scheduler, at("get", leases, "leases", "my-scheduler"), true},
		"renew the own Lease":          {scheduler, at("update", leases, "leases", "my-scheduler"), true},
		"renew another Lease":          {scheduler, at("update", leases, "leases", "kube-controller-manager"), false},
		"bind Pods":                    {scheduler, at("create", "", "bindings", ""), true},
		"list nodes":                   {scheduler, at("list", "", "nodes", ""), true},
		"update volumes":               {scheduler, at("update", "", "persistentvolumeclaims", ""), true},
		"read the front proxy's CA":    {scheduler, at("get", "", "configmaps", "extension-apiserver-authentication"), true},
		"scheduler reads secrets":      {scheduler, at("get", "", "secrets", ""), false},
		"server reviews tokens":        {server, at("create", "authentication.k8s.io", "tokenreviews", ""), true},
		"server reads secrets":         {server, at("get", "", "secrets", ""), false},
		"server reviews no access":     {server, at("create", "authorization.k8s.io", "subjectaccessreviews", ""), false},
		"agent has no rights to Pods":  {agent, at("list", "", "pods", ""), false},
		"server counts by Lease":       {server, counting("create", ""), true},
		"server renews its Lease":      {server, counting("update", "konnectivity-proxy-server-x"), true},
		"server takes no other Lease":  {server, at("update", leases, "leases", "kube-controller-manager"), false},
		"agent counts by Lease":        {agent, counting("watch", ""), true},
		"agent sees no other Lease":    {agent, at("watch", leases, "leases", ""), false},
		"agent does not write a Lease": {agent, counting("update", "konnectivity-proxy-server-x"), false},
	} {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: tc.user, ResourceAttributes: &tc.what}}
		got, err := client.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got.Status.Allowed != tc.want {
			t.Errorf("%s: allowed %t, want %t: %s", name, got.Status.Allowed, tc.want, got.Status.Reason)
		}
	}
}
