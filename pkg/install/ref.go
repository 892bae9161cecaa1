// SPDX-License-Identifier: Apache-2.0

package install

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
)

// Ref identifies an object in the API.
type Ref struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Namespace is empty for cluster-scoped objects.
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// RefOf returns the Ref of u.
func RefOf(u *unstructured.Unstructured) Ref {
	return Ref{APIVersion: u.GetAPIVersion(), Kind: u.GetKind(), Namespace: u.GetNamespace(), Name: u.GetName()}
}

// RefTo returns the Ref of an object of a Go type, which has its kind set.
func RefTo(o component.Object) Ref {
	version, kind := o.GetObjectKind().GroupVersionKind().ToAPIVersionAndKind()
	return Ref{APIVersion: version, Kind: kind, Namespace: o.GetNamespace(), Name: o.GetName()}
}

// String returns a readable name: "Deployment kube-system/my-scheduler".
func (r Ref) String() string {
	if r.Namespace == "" {
		return r.Kind + " " + r.Name
	}
	return r.Kind + " " + r.Namespace + "/" + r.Name
}

// ShortName returns what kubectl prints for -o name:
// "deployment.apps/my-scheduler".
func (r Ref) ShortName() string {
	kind := strings.ToLower(r.Kind)
	if group := r.gvk().Group; group != "" {
		kind += "." + group
	}
	return kind + "/" + r.Name
}

func (r Ref) gvk() schema.GroupVersionKind {
	return schema.FromAPIVersionAndKind(r.APIVersion, r.Kind)
}

// key ignores the version: an object is the same in each version.
func (r Ref) key() Ref {
	r.APIVersion = r.gvk().Group
	return r
}

// definitionKind is the kind whose deletion deletes all objects of another kind.
const definitionKind = "CustomResourceDefinition"

// order is the order in which kinds are applied; kinds that are not listed come
// between configuration and workloads. Deletion uses the reverse order.
var order = []string{
	"Namespace", definitionKind, "ServiceAccount",
	"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding",
	"ConfigMap", "Secret", "Service", "*", "PodDisruptionBudget", "DaemonSet", "Deployment",
	// Policies assign new Pods to a scheduler, so the scheduler is applied
	// before them and deleted after them.
	"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding",
	apiServiceKind,
}

func rank(kind string) int {
	if i := slices.Index(order, kind); i >= 0 {
		return i
	}
	return slices.Index(order, "*")
}

// sorted returns manifests of the objects in the order in which to apply them.
func sorted(objects []component.Object) ([]*unstructured.Unstructured, error) {
	out := make([]*unstructured.Unstructured, 0, len(objects))
	for _, o := range objects {
		u, err := bundle.Manifest(o)
		if err != nil {
			return nil, err
		}
		out = append(out, u)
	}
	slices.SortStableFunc(out, func(a, b *unstructured.Unstructured) int { return cmp.Compare(rank(a.GetKind()), rank(b.GetKind())) })
	return out, nil
}

// phase is a phase of deletion. Workloads need the objects of the later phase
// until they have exited, and the objects of the earlier phases depend on the
// workloads.
type phase int

const (
	registration phase = iota
	admission
	workloads
	agents
	others
)

func phaseOf(kind string) phase {
	switch r := rank(kind); {
	case kind == apiServiceKind:
		return registration
	case r > rank("Deployment"):
		return admission
	case r > rank("*"):
		return workloads
	default:
		return others
	}
}

// phase is that of an object: agents are the last of the workloads.
func (ch change) phase() phase {
	if p := phaseOf(ch.Kind); p != workloads || !konnectivity.IsAgent(ch.Kind, ch.live.GetLabels()) {
		return p
	}
	return agents
}

// reversed sorts refs for deletion: registration and admission first, then workloads, namespaces
// last.
func reversed(refs []Entry) []Entry {
	out := slices.Clone(refs)
	slices.SortStableFunc(out, func(a, b Entry) int { return cmp.Compare(rank(b.Kind), rank(a.Kind)) })
	return out
}
