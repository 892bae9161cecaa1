// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"cmp"
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/gateway"
	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/bundle/operator"
	"github.com/fairlead-dev/fairlead/pkg/bundle/rbac"
	"github.com/fairlead-dev/fairlead/pkg/bundle/tunnelapi"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/check"
)

// ReviewTokens is the right without which a server that authenticates agents refuses them all.
const ReviewTokens = "create tokenreviews.authentication.k8s.io"

// builtIn are the roles that every cluster has and that bundles bind, with what Fairlead's programs need of them.
var builtIn = map[string][]rbacv1.PolicyRule{
	"system:auth-delegator": {
		{APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"tokenreviews"}, Verbs: []string{"create"}},
		{APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"subjectaccessreviews"}, Verbs: []string{"create"}},
	},
	"extension-apiserver-authentication-reader": {
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{"extension-apiserver-authentication"}, Verbs: []string{"get", "list", "watch"}},
	},
}

// granted are the rights that rendered objects give a subject, as [Attributes] reads them.
func granted(objects []component.Object, who rbacv1.Subject) []string {
	roles := map[string][]rbacv1.PolicyRule{}
	for _, o := range objects {
		switch r := o.(type) {
		case *rbacv1.ClusterRole:
			roles["/"+r.Name] = r.Rules
		case *rbacv1.Role:
			roles[r.Namespace+"/"+r.Name] = r.Rules
		}
	}
	var out []string
	add := func(subjects []rbacv1.Subject, ref rbacv1.RoleRef, namespace string) {
		if !slices.Contains(subjects, who) {
			return
		}
		owner := namespace
		if ref.Kind == "ClusterRole" {
			owner = ""
		}
		rules, rendered := roles[owner+"/"+ref.Name]
		if !rendered {
			rules = builtIn[ref.Name]
		}
		for _, rule := range rules {
			for _, right := range rightsOf(rule) {
				if namespace != "" {
					right += " in " + namespace
				}
				if !slices.Contains(out, right) {
					out = append(out, right)
				}
			}
		}
	}
	for _, o := range objects {
		switch b := o.(type) {
		case *rbacv1.ClusterRoleBinding:
			add(b.Subjects, b.RoleRef, "")
		case *rbacv1.RoleBinding:
			add(b.Subjects, b.RoleRef, b.Namespace)
		}
	}
	return out
}

// tunnelRights are what a bundle with the settings of a server or an agent grants it. Upstream's server reads no nodes, and patches no Lease.
func (c *collector) tunnelRights(p Program) ([]string, error) {
	b := c.s.Bundle.Defaulted()
	k := &b.Konnectivity
	k.Enabled, k.Agent.Identifiers = ptr.To(true), ""
	k.LeaseCounting = ptr.To(p.Flag("enable-lease-controller", "false") == "true" || p.Flag("count-server-leases", "false") == "true")
	k.LeaseNamespace = p.Flag("lease-namespace", metav1.NamespaceSystem)
	ours, who := p.Pod == nil || v1alpha1.IsFairlead(p.Image), rbac.User(konnectivity.ServerUser)
	if p.Role == check.RoleAgent {
		who = rbac.ServiceAccount(b.Namespace, k.AgentServiceAccount)
	} else if ours {
		for _, agent := range Of(c.s.Programs.Value, check.RoleAgent) {
			k.Agent.Identifiers = cmp.Or(agent.Flag("agent-identifiers", ""), k.Agent.Identifiers)
		}
	}
	objects, err := konnectivity.Objects(b)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(granted(objects, who), func(right string) bool {
		return right == ReviewTokens && p.Flag("agent-namespace", "") == "" || !ours && strings.HasPrefix(right, "patch ")
	}), nil
}

// agentIdentity is an agent's: its Pod's ServiceAccount, or that of the bundle for a process.
func agentIdentity(p Program, b *v1alpha1.Bundle) (user string, groups []string) {
	if p.Pod == nil {
		return serviceAccount(b.Namespace, b.Konnectivity.AgentServiceAccount)
	}
	return serviceAccount(p.Pod.Namespace, cmp.Or(p.Pod.Spec.ServiceAccountName, "default"))
}

// otherReviews asks what the identities of the operator, the tunnel's API server and the gateway may do, apart from the others: the operator
// has many rights, and an API server that answers slowly must not make those of servers and schedulers unknown.
func (c *collector) otherReviews(ctx context.Context) ([]Review, error) {
	a := asker{c: c}
	for _, p := range c.s.Programs.Value {
		if p.Pod == nil || p.Hosted {
			continue
		}
		rights, err := c.otherRights(p)
		if err != nil {
			return a.out, err
		}
		user, groups := serviceAccount(p.Pod.Namespace, cmp.Or(p.Pod.Spec.ServiceAccountName, "default"))
		if p.Role == check.RoleGateway && isStatic(p.Pod) {
			user, groups = gateway.User, []string{"system:authenticated"}
		}
		if err := a.ask(ctx, p.Role, user, groups, false, rights); err != nil {
			return a.out, err
		}
	}
	return a.out, nil
}

// isStatic reports whether a Pod is that of a file of its node: it has no ServiceAccount.
func isStatic(p *corev1.Pod) bool { return p.Annotations[corev1.MirrorPodAnnotationKey] != "" }

// otherRights are those that a bundle, or the installation of the operator, grants the program. A "fairlead socks5" that no bundle made needs
// others.
func (c *collector) otherRights(p Program) ([]string, error) {
	b := c.s.Bundle.Defaulted()
	switch {
	case p.Role == check.RoleOperator:
		objects, err := operator.Objects(operator.Options{Namespace: p.Pod.Namespace})
		return granted(objects, rbac.ServiceAccount(p.Pod.Namespace, operator.Name)), err
	case p.Role == check.RoleTunnelAPI:
		b.TunnelAPI.Enabled, b.TunnelAPI.Connect = ptr.To(true), ptr.To(p.Flag("connect", "false") == "true")
		objects, err := tunnelapi.Objects(b)
		return granted(objects, rbac.ServiceAccount(b.Namespace, v1alpha1.TunnelAPIName)), err
	case p.Role == check.RoleGateway && hasLabels(p.Pod, gateway.Labels()):
		b.Gateway.Enabled, b.Gateway.Form = ptr.To(true), v1alpha1.FormDeployment
		objects, err := gateway.Objects(b)
		return granted(objects, rbac.ServiceAccount(b.Namespace, v1alpha1.GatewayName)), err
	}
	return nil, nil
}

func hasLabels(p *corev1.Pod, want map[string]string) bool {
	for k, v := range want {
		if p.Labels[k] != v {
			return false
		}
	}
	return true
}
