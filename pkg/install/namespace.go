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

// everywhere are objects that each namespace has by itself.
var everywhere = []string{"ServiceAccount default", "ConfigMap kube-root-ca.crt"}

// comeAndGo are kinds that follow from others.
var comeAndGo = []string{"Event", "Endpoints", "EndpointSlice", "Lease", "ControllerRevision", "PodMetrics"}

// keepNamespace says why a namespace must stay; "" if it may go. Deleting it would
// delete all that is inside.
func (c *client) keepNamespace(ctx context.Context, e Entry) (string, error) {
	if e.Adopted {
		return "it was there before", nil
	}
	lists, err := c.kube.Discovery().ServerPreferredNamespacedResources()
	if discovery.IsGroupDiscoveryFailedError(err) {
		// An aggregated API does not answer: what it serves may be there.
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
		return fmt.Sprintf("cannot see whether it holds a %s of somebody else", kind), nil
	case err != nil:
		return "", fmt.Errorf("list %s in namespace %s: %w", gvr.Resource, namespace, err)
	}
	for i := range items.Items {
		item := &items.Items[i]
		if name := kind + " " + item.Name; !slices.Contains(everywhere, name) && len(item.OwnerReferences) == 0 && !applied(item.ManagedFields) {
			return "it holds " + name + " of somebody else", nil
		}
	}
	return "", nil
}
