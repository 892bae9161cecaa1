// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/bundle/scheduler"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/check"
	"github.com/fairlead-dev/fairlead/pkg/install"
	"github.com/fairlead-dev/fairlead/pkg/internal/parallel"
	"github.com/fairlead-dev/fairlead/pkg/scheduler/profilecheck"
)

// Attributes reads a right such as "create pods/binding" or "get leases.coordination.k8s.io/my-scheduler in kube-system": verb, resource with
// subresource, group, and in the last form a name.
func Attributes(right string) *authorizationv1.ResourceAttributes {
	verb, rest, _ := strings.Cut(right, " ")
	resource, space, _ := strings.Cut(rest, " in ")
	out := &authorizationv1.ResourceAttributes{Verb: verb, Namespace: space}
	resource, name, _ := strings.Cut(resource, " named ")
	out.Name = name
	resource, out.Group, _ = strings.Cut(resource, ".")
	out.Resource, out.Subresource, _ = strings.Cut(resource, "/")
	if group, sub, ok := strings.Cut(out.Group, "/"); ok {
		out.Group, out.Subresource = group, sub
	}
	return out
}

func (c *collector) mayI(ctx context.Context, right string) (bool, error) {
	r, err := c.client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: Attributes(right)},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return r.Status.Allowed, nil
}

// schedulerRights are those without which a scheduler binds no Pod, waits for its caches for ever, or does not lead.
func (c *collector) schedulerRights(p Program) ([]string, error) {
	b := c.s.Bundle
	configuration, err := c.configuration()
	if err != nil {
		return nil, err
	}
	gates := maps.Clone(b.Scheduler.FeatureGates)
	if given := p.Flag("feature-gates", ""); given != "" {
		gates = gatesIn(given)
	}
	needs, err := scheduler.Needs(configuration, gates, scheduler.KubernetesVersion(p.Image))
	if err != nil {
		return nil, err
	}
	var out []string
	for _, rule := range needs {
		for _, right := range rightsOf(rule) {
			if !slices.Contains(out, right) {
				out = append(out, right)
			}
		}
	}
	if l := b.Scheduler.LeaderElection; ptr.Deref(l.LeaderElect, true) {
		out = append(out, "create leases.coordination.k8s.io in "+l.LeaseNamespace,
			fmt.Sprintf("get leases.coordination.k8s.io named %s in %s", l.LeaseName, l.LeaseNamespace),
			fmt.Sprintf("update leases.coordination.k8s.io named %s in %s", l.LeaseName, l.LeaseNamespace))
	}
	return out, nil
}

// configuration is that of the second scheduler in the cluster, or that of the bundle if there is none that kube-scheduler would load.
func (c *collector) configuration() ([]byte, error) {
	own := types.NamespacedName{Namespace: c.s.Bundle.Namespace, Name: scheduler.ConfigMapName(c.s.Bundle)}
	for _, found := range c.s.Configurations.Value {
		if _, err := profilecheck.Load([]byte(found.Text)); err == nil && found.ConfigMap == own {
			return []byte(found.Text), nil
		}
	}
	return scheduler.Configuration(c.s.Bundle, "")
}

// gatesIn reads the value of --feature-gates.
func gatesIn(flag string) map[string]bool {
	gates := map[string]bool{}
	for pair := range strings.SplitSeq(flag, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(pair), "=")
		if on, err := strconv.ParseBool(value); err == nil {
			gates[name] = on
		}
	}
	return gates
}

// rightsOf writes a rule as [Attributes] reads rights.
func rightsOf(rule rbacv1.PolicyRule) []string {
	var out []string
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			resource, sub, nested := strings.Cut(resource, "/")
			if group != "" {
				resource += "." + group
			}
			if nested {
				resource += "/" + sub
			}
			for _, verb := range rule.Verbs {
				for _, name := range rule.ResourceNames {
					out = append(out, verb+" "+resource+" named "+name)
				}
				if len(rule.ResourceNames) == 0 {
					out = append(out, verb+" "+resource)
				}
			}
		}
	}
	return out
}

// asker asks each right of an identity once, however many programs have the identity. A review changes nothing.
type asker struct {
	c   *collector
	out []Review
}

func (a *asker) ask(ctx context.Context, role check.Role, user string, groups []string, assumed bool, rights []string) error {
	rights = slices.DeleteFunc(slices.Clone(rights), func(right string) bool {
		return slices.ContainsFunc(a.out, func(r Review) bool {
			return r.Identity == user && r.Role == string(role) && r.Assumed == assumed && r.Right == right
		})
	})
	allowed, err := parallel.Map(ctx, rights, func(ctx context.Context, right string) (bool, error) {
		r, err := a.c.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{User: user, Groups: groups, ResourceAttributes: Attributes(right)},
		}, metav1.CreateOptions{})
		if err != nil {
			return false, fmt.Errorf("ask for the rights of %s: %w", user, err)
		}
		return r.Status.Allowed, nil
	})
	if err != nil {
		return err
	}
	for i, right := range rights {
		a.out = append(a.out, Review{Identity: user, Role: string(role), Right: right, Allowed: allowed[i], Assumed: assumed})
	}
	return nil
}

// reviews asks what the identities of schedulers, servers and agents may do.
func (c *collector) reviews(ctx context.Context) ([]Review, error) {
	a := asker{c: c}
	for _, role := range []check.Role{check.RoleScheduler, check.RoleServer, check.RoleAgent} {
		for _, p := range Of(c.s.Programs.Value, role) {
			var user string
			var groups, rights []string
			var assumed bool
			var err error
			switch role {
			case check.RoleScheduler:
				user, groups = identity(p, c.s.Bundle)
				rights, err = c.schedulerRights(p)
			case check.RoleServer:
				user, groups, assumed = serverIdentity(p, c.s.Bundle)
				rights, err = c.tunnelRights(p)
			default:
				user, groups = agentIdentity(p, c.s.Bundle)
				rights, err = c.tunnelRights(p)
			}
			if err != nil {
				return a.out, err
			}
			if err := a.ask(ctx, role, user, groups, assumed, rights); err != nil {
				return a.out, err
			}
		}
	}
	return a.out, nil
}

// serverIdentity is a server's. Its kubeconfig is a file of the node: that of the bundle's server has a known user, and of another it is assumed that
// it names the user of the documentation.
func serverIdentity(p Program, b *v1alpha1.Bundle) (user string, groups []string, assumed bool) {
	file := p.Flag("kubeconfig", "")
	if p.Pod != nil && file == "" {
		user, groups = serviceAccount(p.Pod.Namespace, cmp.Or(p.Pod.Spec.ServiceAccountName, "default"))
		return user, groups, false
	}
	bundled := file == b.Konnectivity.Server.Kubeconfig && imageName(p.Image) == imageName(b.Konnectivity.Server.Image)
	return konnectivity.ServerUser, []string{"system:authenticated"}, p.Pod != nil && !bundled
}

// identity is a scheduler's: its Pod's ServiceAccount, or that of the bundle for a process.
func identity(p Program, b *v1alpha1.Bundle) (user string, groups []string) {
	if p.Pod != nil && p.Pod.Spec.ServiceAccountName != "" && b.Scheduler.Form != v1alpha1.FormStaticPod {
		return serviceAccount(p.Pod.Namespace, p.Pod.Spec.ServiceAccountName)
	}
	if b.Scheduler.Form == v1alpha1.FormStaticPod {
		return "fairlead:" + b.Scheduler.Name, []string{"system:authenticated"}
	}
	return serviceAccount(b.Namespace, b.Scheduler.Name)
}

func serviceAccount(namespace, name string) (string, []string) {
	return "system:serviceaccount:" + namespace + ":" + name, []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"}
}

// bound finds which of the schedulers that pending Pods name have ever bound a Pod that still exists.
func (c *collector) bound(ctx context.Context) (map[string]int, error) {
	out := map[string]int{}
	for _, p := range c.s.Pending.Value {
		name := p.Spec.SchedulerName
		if _, done := out[name]; done || name == "" {
			continue
		}
		l, err := c.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.schedulerName=" + name + ",spec.nodeName!=", Limit: 1})
		if err != nil {
			return out, fmt.Errorf("list Pods of scheduler %s: %w", name, err)
		}
		out[name] = len(l.Items)
	}
	return out, nil
}

func (c *collector) preflight(ctx context.Context) ([]install.Finding, error) {
	return install.Preflight(ctx, c.cfg, c.s.Bundle, false)
}

// blocked compares the cluster with the bundle by dry runs, which the API server does not store.
func (c *collector) blocked(ctx context.Context) ([]install.Problem, error) {
	rendered, err := bundle.Render(c.s.Bundle)
	if err != nil {
		return nil, err
	}
	d, err := install.Diff(ctx, c.cfg, rendered.Objects)
	if err != nil {
		return nil, err
	}
	return d.Problems, nil
}

func (c *collector) missing(ctx context.Context) ([]string, error) {
	rendered, err := bundle.Render(c.s.Bundle)
	if err != nil {
		return nil, err
	}
	return install.MissingRights(ctx, c.cfg, rendered.Objects)
}
