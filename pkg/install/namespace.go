// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
)

// everywhere lists objects that Kubernetes creates in each namespace.
var everywhere = []string{"ServiceAccount default", "ConfigMap kube-root-ca.crt"}

// comeAndGo lists kinds that controllers create for other objects.
var comeAndGo = []string{"Event", "Endpoints", "EndpointSlice", "Lease", "ControllerRevision", "PodMetrics"}

// keepNamespace returns why a namespace must stay, or "" if it can be deleted.
// Deleting it would delete every object in it.
func (c *client) keepNamespace(ctx context.Context, e Entry) (string, error) {
	if e.Adopted {
		return "it was there before", nil
	}
	if c.keepNamespaces {
		return "whether it holds objects of other owners is unknown", nil
	}
	lists, err := c.kube.Discovery().ServerPreferredNamespacedResources()
	if discovery.IsGroupDiscoveryFailedError(err) {
		// An aggregated API does not answer, and the namespace may contain its
		// objects.
		return "cannot see what it holds: " + err.Error(), nil
	}
	if err != nil {
		return "", fmt.Errorf("ask what may be in namespace %s: %w", e.Name, err)
	}
	for _, list := range lists {
		for _, r := range list.APIResources {
			if !slices.Contains(r.Verbs, "list") || strings.Contains(r.Name, "/") || slices.Contains(comeAndGo, r.Kind) {
				continue
			}
			gvr := schema.FromAPIVersionAndKind(list.GroupVersion, r.Kind).GroupVersion().WithResource(r.Name)
			found, err := c.foreignIn(ctx, gvr, r.Kind, e.Name)
			if err != nil || found != "" {
				return found, err
			}
		}
	}
	return "", nil
}

func (c *client) foreignIn(ctx context.Context, gvr schema.GroupVersionResource, kind, namespace string) (string, error) {
	items, err := c.metadata.Resource(gvr).Namespace(namespace).List(ctx, metav1.ListOptions{})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsMethodNotSupported(err):
		return "", nil
	case apierrors.IsForbidden(err):
		return fmt.Sprintf("whether it holds a %s of another owner is unknown", kind), nil
	case err != nil:
		return "", fmt.Errorf("list %s in namespace %s: %w", gvr.Resource, namespace, err)
	}
	for i := range items.Items {
		item := &items.Items[i]
		if name := kind + " " + item.Name; !slices.Contains(everywhere, name) && len(item.OwnerReferences) == 0 && !c.party.applied(item.ManagedFields) && !slices.Contains(c.ownUIDs, item.UID) {
			return "it holds " + name + " of another owner", nil
		}
	}
	return "", nil
}
