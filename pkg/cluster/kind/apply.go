package kind

import (
	"context"
	"errors"
	"net"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/install"
)

// applyAll makes all objects what the bundle says, as "fairlead install" does, so
// that this and "fairlead uninstall" know the cluster's bundle.
func applyAll(ctx context.Context, config *rest.Config, objects []component.Object, leases []install.Lease) error {
	_, err := install.Apply(ctx, config, objects, install.Options{Timeout: installLimit, Leases: leases})
	return err
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
