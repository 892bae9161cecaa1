// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"context"
	"errors"
	"net"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/cluster"
	"github.com/fairlead-dev/fairlead/pkg/install"
)

// applyBundle applies those objects of the bundle that are wanted. They have an inventory of their own,
// so that "fairlead install" of another bundle deletes none of them. With an operator,
// they are applied as "fairlead install" does, because the operator adopts no others.
func (p *plan) applyBundle(ctx context.Context, config *rest.Config, wanted func(component.Object) bool) error {
	compute := func(ctx context.Context) ([]component.Object, error) {
		objects, err := install.Objects(ctx, config, p.bundle, time.Now())
		return slices.DeleteFunc(objects, func(o component.Object) bool { return !wanted(o) }), err
	}
	options := install.Options{Party: install.Provider, Timeout: installLimit, Leases: install.LeasesOf(p.bundle), Recompute: compute}
	if p.state.Operator {
		if managed, err := cluster.HasBundle(ctx, config); err != nil || managed {
			return err
		}
		options.Party, options.KeepOthers = install.Command, true
	}
	objects, err := compute(ctx)
	if err != nil {
		return err
	}
	_, err = install.Apply(ctx, config, objects, options)
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
