// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// resyncMeanwhile is how long until the operator looks again when an object has changed since
// it was read. The cache has the new one by then.
const resyncMeanwhile = time.Second

// errGone means that an object was deleted since it was read.
var errGone = errors.New("the object is gone")

// meanwhile tells whether an error says no more than that another client was faster. The next
// look cures it, so it is not an error for logs, events, metrics and conditions.
func meanwhile(err error) bool { return apierrors.IsConflict(err) || errors.Is(err, errGone) }

// ended is the result of a look: the next one is after a time, or soon if another client was
// faster. Other failures are returned.
func ended(after time.Duration, failures ...error) (ctrl.Result, error) {
	var others []error
	for _, err := range failures {
		switch {
		case err == nil:
		case meanwhile(err):
			after = min(after, resyncMeanwhile)
		default:
			others = append(others, err)
		}
	}
	if len(others) > 0 { // controller-runtime chooses the time of the next try
		return ctrl.Result{}, errors.Join(others...)
	}
	return ctrl.Result{RequeueAfter: after}, nil
}

// writeStatus writes the status of an object.
func writeStatus(ctx context.Context, c client.Client, kind string, o client.Object) error {
	err := c.Status().Update(ctx, o)
	if apierrors.IsNotFound(err) {
		err = errGone
	}
	if err != nil {
		return fmt.Errorf("write the status of %s %s: %w", kind, o.GetName(), err)
	}
	return nil
}
