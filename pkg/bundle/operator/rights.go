// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/crds"
	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/v1beta1"
	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/gateway"
	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/bundle/rbac"
	"github.com/fairlead-dev/fairlead/pkg/bundle/scheduler"
	"github.com/fairlead-dev/fairlead/pkg/bundle/tunnelapi"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// Inventories are the ConfigMaps in kube-system that list what the operator installed: the
// Bundle's objects, and the agents of TunnelPools. Package install names them.
var Inventories = []string{"fairlead-inventory", "fairlead-inventory-pools"}

// rights are what the operator may do, and nothing else.
func rights(o Options) ([]component.Object, error) {
	role, err := ClusterRole()
	if err != nil {
		return nil, err
	}
	subject := rbac.ServiceAccount(o.Namespace, Name)
	objects := []component.Object{
		role,
		rbac.ClusterRoleBinding(Name, Name, subject),
		// Apply keeps its list of what it installed there.
		rbac.Role(metav1.NamespaceSystem, Name,
			rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: Inventories, Verbs: []string{"update"}}),
		rbac.RoleBinding(metav1.NamespaceSystem, Name, Name, subject),
	}
	if o.Namespace == metav1.NamespaceSystem {
		objects[2].(*rbacv1.Role).Rules = append(objects[2].(*rbacv1.Role).Rules, ownRules()...)
	} else {
		objects = append(objects, rbac.Role(o.Namespace, Name, ownRules()...), rbac.RoleBinding(o.Namespace, Name, Name, subject))
	}
	for _, object := range objects {
		object.SetLabels(Labels())
	}
	return append(objects, viewerRole()), nil
}

// ProfileViewerRole is the ClusterRole of users who may see SchedulerProfiles, and with them the names that
// they can use as schedulerName.
const ProfileViewerRole = "fairlead-schedulerprofiles-viewer"

// viewerRole lets users read SchedulerProfiles; by aggregation, all whom a ClusterRoleBinding gives the
// ClusterRole view. A RoleBinding gives nothing of a kind without namespaces.
func viewerRole() *rbacv1.ClusterRole {
	role := rbac.ClusterRole(ProfileViewerRole, rbacv1.PolicyRule{
		APIGroups: []string{v1beta1.GroupVersion.Group}, Resources: []string{"schedulerprofiles"}, Verbs: []string{"get", "list", "watch"},
	})
	role.Labels = Labels()
	for _, name := range []string{"view", "edit", "admin"} {
		role.Labels["rbac.authorization.k8s.io/aggregate-to-"+name] = "true"
	}
	return role
}

// ownRules are for the Secret with the webhook's CA and certificate, and for events of the
// leader election.
func ownRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
		// A create request has no name yet, so it cannot be limited by one.
		{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"create"}},
		{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{WebhookSecret}, Verbs: []string{"get", "list", "update", "watch"}},
	}
}

// ClusterRole is what the operator may do in all namespaces: a Bundle may name any.
func ClusterRole() (*rbacv1.ClusterRole, error) {
	g := grants{}
	// What server-side apply takes, and the removal of what a bundle no longer has.
	apply := []string{"get", "create", "patch", "delete"}
	g.add("", apply, "configmaps", "serviceaccounts", "services")
	g.add("", []string{"get", "create", "patch"}, "namespaces")
	g.add("apps", append([]string{"list", "watch"}, apply...), "daemonsets", "deployments")
	g.add("policy", apply, "poddisruptionbudgets")
	g.add("networking.k8s.io", apply, "networkpolicies")
	g.add(rbacv1.GroupName, apply, "clusterrolebindings", "clusterroles", "rolebindings", "roles")
	g.add("admissionregistration.k8s.io", apply, "mutatingadmissionpolicies", "mutatingadmissionpolicybindings")
	g.add("discovery.k8s.io", []string{"list"}, "endpointslices") // an APIService waits for a replica
	// The lock of `fairlead install`, the operator's own election, and the scheduler's leader.
	// Those of the lock and of the scheduler go with a Bundle of deletionPolicy Delete.
	g.add("coordination.k8s.io", []string{"get", "create", "update", "delete"}, "leases")
	// What speaks against an installation: Pods of kube-apiserver, and nodes that no agent fits.
	g.add("", []string{"list"}, "nodes", "pods")
	g.add("events.k8s.io", []string{"create", "patch"}, "events")
	// Who asks for metrics, and whether this user may.
	g.add("authentication.k8s.io", []string{"create"}, "tokenreviews")
	g.add("authorization.k8s.io", []string{"create"}, "subjectaccessreviews")
	kinds, err := crds.All()
	if err != nil {
		return nil, fmt.Errorf("render the operator: %w", err)
	}
	var definitions, converted []string
	for _, d := range kinds {
		definitions = append(definitions, d.Name)
		g.add(d.Spec.Group, []string{"list", "watch"}, d.Spec.Names.Plural)
		g.add(d.Spec.Group, []string{"update"}, d.Spec.Names.Plural+"/status")
		if len(d.Spec.Versions) == 1 {
			continue
		}
		converted = append(converted, d.Name)
		// A migration of stored objects patches them, with nothing that changes them, and reads again those that have changed
		// meanwhile. The finalizer of a Bundle is a patch as well; bundles/finalizers is for owner references only.
		g.add(d.Spec.Group, []string{"get", "patch"}, d.Spec.Names.Plural)
		g.add(d.Spec.Group, []string{"patch"}, d.Spec.Names.Plural+"/status") // a migration patches it if admission refuses the object
	}
	objects, err := everyObject()
	if err != nil {
		return nil, fmt.Errorf("render the operator: %w", err)
	}
	bind := g.addGranted(objects)
	named := []rbacv1.PolicyRule{
		{APIGroups: []string{"apiextensions.k8s.io"}, Resources: []string{"customresourcedefinitions"}, ResourceNames: definitions, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{"apiextensions.k8s.io"}, Resources: []string{"customresourcedefinitions"}, ResourceNames: converted, Verbs: []string{"patch"}},
		{APIGroups: []string{"apiextensions.k8s.io"}, Resources: []string{"customresourcedefinitions/status"}, ResourceNames: converted, Verbs: []string{"patch"}},
		{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{
			gateway.CASecret, v1alpha1.DefaultGatewaySecret, tunnelapi.CASecret, v1alpha1.DefaultTunnelAPISecret,
		}, Verbs: apply},
	}
	return rbac.ClusterRole(Name, slices.Concat(g.rules(), named, constant(objects, apply), bind)...), nil
}

// grants are verbs per resource.
type grants map[schema.GroupResource]sets.Set[string]

func (g grants) add(group string, verbs []string, resources ...string) {
	for _, r := range resources {
		key := schema.GroupResource{Group: group, Resource: r}
		if g[key] == nil {
			g[key] = sets.New[string]()
		}
		g[key].Insert(verbs...)
	}
}

// constantNames are the kinds whose objects have the same names in all bundles; others of these
// kinds rule the API server. Server-side apply creates an object by a request that has its name, so
// a rule can limit the verb create as well.
var constantNames = map[string]schema.GroupResource{
	"APIService":                 {Group: "apiregistration.k8s.io", Resource: "apiservices"},
	"FlowSchema":                 {Group: "flowcontrol.apiserver.k8s.io", Resource: "flowschemas"},
	"PriorityLevelConfiguration": {Group: "flowcontrol.apiserver.k8s.io", Resource: "prioritylevelconfigurations"},
}

// constant returns rules for the objects of these kinds, by name.
func constant(objects []component.Object, verbs []string) (rules []rbacv1.PolicyRule) {
	for _, kind := range slices.Sorted(maps.Keys(constantNames)) {
		names := sets.New[string]()
		for _, o := range objects {
			if o.GetObjectKind().GroupVersionKind().Kind == kind {
				names.Insert(o.GetName())
			}
		}
		r := constantNames[kind]
		rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{r.Group}, Resources: []string{r.Resource}, ResourceNames: sets.List(names), Verbs: verbs})
	}
	return rules
}

// everyObject are the objects of a bundle with all parts.
func everyObject() (all []component.Object, err error) {
	for _, part := range []func(*v1alpha1.Bundle) ([]component.Object, error){konnectivity.Objects, scheduler.Objects, gateway.Objects, tunnelapi.Objects} {
		objects, err := part(everything())
		if err != nil {
			return nil, err
		}
		all = append(all, objects...)
	}
	// `fairlead install` adds this one, with the CA that it makes.
	return append(all, tunnelapi.APIService(everything(), nil)), nil
}

// addGranted adds what bundles grant, because Kubernetes lets a user grant only the rights that the user has. Names in
// these rules depend on the Bundle, so they are left out. It returns rules to bind the roles that
// bundles bind and do not render.
func (g grants) addGranted(objects []component.Object) []rbacv1.PolicyRule {
	rendered, bound := sets.New[rbacv1.RoleRef](), sets.New[rbacv1.RoleRef]()
	for _, o := range objects {
		switch r := o.(type) {
		case *rbacv1.ClusterRole:
			rendered.Insert(rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: r.Kind, Name: r.Name})
			g.addRules(r.Rules)
		case *rbacv1.Role:
			rendered.Insert(rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: r.Kind, Name: r.Name})
			g.addRules(r.Rules)
		case *rbacv1.ClusterRoleBinding:
			bound.Insert(r.RoleRef)
		case *rbacv1.RoleBinding:
			bound.Insert(r.RoleRef)
		}
	}
	names := map[string][]string{}
	for ref := range bound.Difference(rendered) {
		names[strings.ToLower(ref.Kind)+"s"] = append(names[strings.ToLower(ref.Kind)+"s"], ref.Name)
	}
	var rules []rbacv1.PolicyRule
	for _, plural := range slices.Sorted(maps.Keys(names)) {
		slices.Sort(names[plural])
		rules = append(rules, rbacv1.PolicyRule{
			APIGroups: []string{rbacv1.GroupName}, Resources: []string{plural}, ResourceNames: names[plural], Verbs: []string{"bind"},
		})
	}
	return rules
}

func (g grants) addRules(rules []rbacv1.PolicyRule) {
	for _, r := range rules {
		for _, group := range r.APIGroups {
			g.add(group, r.Verbs, r.Resources...)
		}
	}
}

// everything is a bundle that grants all that any bundle grants; a test compares it with others.
func everything() *v1alpha1.Bundle {
	b := v1alpha1.New()
	b.Konnectivity.LeaseCounting = ptr.To(true)
	b.Konnectivity.Agent.Identifiers = "host=$(" + v1alpha1.NodeNameVariable + ")"
	b.Scheduler.BuiltInProfiles.Standard = &v1alpha1.StandardProfile{}
	b.Scheduler.Plugins.TunnelReach.Enabled = ptr.To(true)
	b.Gateway.Enabled = ptr.To(true)
	b.TunnelAPI.Enabled = ptr.To(true)
	return b
}

// rules are sorted; resources of one group with the same verbs share a rule.
func (g grants) rules() []rbacv1.PolicyRule {
	keys := slices.SortedFunc(maps.Keys(g), func(a, b schema.GroupResource) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource))
	})
	var rules []rbacv1.PolicyRule
next:
	for _, key := range keys {
		verbs := sets.List(g[key])
		for i := range rules {
			if rules[i].APIGroups[0] == key.Group && slices.Equal(rules[i].Verbs, verbs) {
				rules[i].Resources = append(rules[i].Resources, key.Resource)
				continue next
			}
		}
		rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{key.Group}, Resources: []string{key.Resource}, Verbs: verbs})
	}
	return rules
}
