// SPDX-License-Identifier: Apache-2.0

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

// applyAll applies all objects of the bundle. They have an inventory of their own,
// so that "fairlead install" of another bundle deletes none of them.
func applyAll(ctx context.Context, config *rest.Config, objects []component.Object, leases []install.Lease) error {
	_, err := install.Apply(ctx, config, objects, install.Options{Party: install.Provider, Timeout: installLimit, Leases: leases})
	return err
}

// transient reports whether a retry may succeed: while a cluster is being created,
// its API server is unavailable at times, and the default namespaces and roles
// appear one by one.
func transient(err error) bool {
	var network net.Error
	return errors.As(err, &network) || utilnet.IsConnectionRefused(err) || utilnet.IsConnectionReset(err) || utilnet.IsProbableEOF(err) ||
		apierrors.IsServiceUnavailable(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err) ||
		apierrors.IsInternalError(err) || apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsConflict(err)
}
