// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fairlead-dev/fairlead/pkg/internal/parallel"
)

// ErrForbidden is returned if the user lacks permissions.
var ErrForbidden = errors.New("this user lacks rights")

// bookkeeping is what a run needs in addition to the objects: the lock and the
// inventory.
func (p Party) bookkeeping() []authorizationv1.ResourceAttributes {
	return []authorizationv1.ResourceAttributes{
		{Group: "coordination.k8s.io", Resource: "leases", Namespace: metav1.NamespaceSystem, Name: LockName},
		{Resource: "configmaps", Namespace: metav1.NamespaceSystem, Name: p.Inventory()},
	}
}

// mayLock checks the permissions for the lock before a run tries to take it,
// because it would retry forever. The error also lists the permissions that are
// missing for these objects.
func (c *client) mayLock(ctx context.Context, manifests []*unstructured.Unstructured) error {
	missing, err := c.missing(ctx, c.party.bookkeeping(), "get", "create", "update")
	if err != nil || len(missing) == 0 {
		return err
	}
	more, err := c.missingFor(ctx, manifests)
	if err != nil {
		return err
	}
	return fmt.Errorf("%w, nothing was changed: it may not\n%s\nhint: %s", ErrForbidden, strings.Join(append(missing, more...), "\n"), hintRights)
}

// missingFor lists the permissions that applying these objects needs and this
// user lacks.
func (c *client) missingFor(ctx context.Context, manifests []*unstructured.Unstructured) ([]string, error) {
	var all []authorizationv1.ResourceAttributes
	for _, m := range manifests {
		gvk := m.GroupVersionKind()
		mapping, err := c.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
		if err != nil {
			continue // makePlan reports this
		}
		a := authorizationv1.ResourceAttributes{Group: gvk.Group, Resource: mapping.Resource.Resource}
		if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
			a.Namespace = m.GetNamespace()
		}
		if !slices.Contains(all, a) {
			all = append(all, a)
		}
	}
	return c.missing(ctx, all, "get", "create", "patch", "delete")
}

// missing checks each verb on each resource.
func (c *client) missing(ctx context.Context, resources []authorizationv1.ResourceAttributes, verbs ...string) ([]string, error) {
	var all []authorizationv1.ResourceAttributes
	for _, a := range resources {
		for _, verb := range verbs {
			a.Verb = verb
			all = append(all, a)
		}
	}
	allowed, err := parallel.Map(ctx, all, c.may)
	if err != nil {
		return nil, err
	}
	var out []string
	for i, a := range all {
		if !allowed[i] {
			out = append(out, describeRight(a))
		}
	}
	return out, nil
}

func describeRight(a authorizationv1.ResourceAttributes) string {
	text := a.Verb + " " + a.Resource
	if a.Group != "" {
		text += "." + a.Group
	}
	if a.Namespace == "" {
		return text + " in the whole cluster"
	}
	return text + " in " + a.Namespace
}

func (c *client) may(ctx context.Context, attributes authorizationv1.ResourceAttributes) (bool, error) {
	review, err := c.kube.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &attributes},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("ask for own rights: %w", err)
	}
	return review.Status.Allowed, nil
}

// blocked returns the error for a plan with problems, or nil if it has none.
func (c *client) blocked(ctx context.Context, problems []Problem, manifests []*unstructured.Unstructured) error {
	if len(problems) == 0 {
		return nil
	}
	err := &BlockedError{Problems: problems}
	if slices.ContainsFunc(problems, func(p Problem) bool { return p.Reason == ReasonForbidden && isRBAC(p.err) }) {
		// This only explains: the problems are reported even if this request
		// fails.
		err.Missing, _ = c.missingFor(ctx, manifests)
	}
	return err
}
