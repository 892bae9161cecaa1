package kind

import (
	"context"
	"errors"
	"fmt"
	"net"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
)

// fieldManager owns the fields that Up applies.
const fieldManager = "fairlead"

// applyAll makes all objects what the bundle says, in order.
func applyAll(ctx context.Context, config *rest.Config, objects []component.Object) error {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	for _, object := range objects {
		u, err := bundle.Manifest(object)
		if err != nil {
			return err
		}
		gvk := u.GroupVersionKind()
		// The bundle's kinds all have regular plurals.
		resource, _ := meta.UnsafeGuessKindToResource(gvk)
		var target dynamic.ResourceInterface = client.Resource(resource)
		if u.GetNamespace() != "" {
			target = client.Resource(resource).Namespace(u.GetNamespace())
		}
		if _, err := target.Apply(ctx, u.GetName(), u, metav1.ApplyOptions{FieldManager: fieldManager, Force: true}); err != nil {
			return fmt.Errorf("applying %s %s: %w", gvk.Kind, u.GetName(), err)
		}
	}
	return nil
}

// transient tells whether an error may be gone the next time: the API server of
// a cluster that is just being made comes and goes, and its own namespaces and
// roles appear one by one.
func transient(err error) bool {
	var network net.Error
	return errors.As(err, &network) || utilnet.IsConnectionRefused(err) || utilnet.IsConnectionReset(err) || utilnet.IsProbableEOF(err) ||
		apierrors.IsServiceUnavailable(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err) ||
		apierrors.IsInternalError(err) || apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsConflict(err)
}
