// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"errors"
	"fmt"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ErrForbidden says that the user lacks permissions. Nothing was changed.
var ErrForbidden = errors.New("this user lacks permissions, and nothing was changed")

// rights asks for all permissions of a run before it begins.
func (m *Migrator) rights(ctx context.Context, p *plan) error {
	needed := []authorizationv1.ResourceAttributes{
		{Verb: "list", Group: p.resource.Group, Resource: p.resource.Resource},
		{Verb: "get", Group: p.resource.Group, Resource: p.resource.Resource},
		{Verb: "patch", Group: p.resource.Group, Resource: p.resource.Resource},
	}
	if !m.options.DryRun && len(p.drop) > 0 {
		needed = append(needed, authorizationv1.ResourceAttributes{Verb: "patch", Group: apiextensionsv1.GroupName, Resource: "customresourcedefinitions", Subresource: "status", Name: p.definition.Name})
	}
	var missing []string
	for _, a := range needed {
		review, err := m.kube.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &a}}, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("ask for permissions: %w", err)
		}
		if !review.Status.Allowed {
			missing = append(missing, strings.TrimRight(fmt.Sprintf("  %s %s.%s/%s", a.Verb, a.Resource, a.Group, a.Subresource), "/"))
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("%s: %w: it may not\n%s\nin all namespaces: grant these permissions with a ClusterRole", p.definition.Name, ErrForbidden, strings.Join(missing, "\n"))
}
