// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// resyncMeanwhile is how long until the operator looks again when an object has changed since
// it was read. The cache has the new one by then.
const resyncMeanwhile = time.Second

// What another client has done since an object was read.
var (
	errGone    = errors.New("the object is gone")
	errChanged = errors.New("the object has changed since it was read")
)

// meanwhile reports whether an error says no more than that another client was faster. The next
// look cures it, so it is not an error for logs, events, metrics and conditions, unless it
// happens again and again.
func meanwhile(err error) bool {
	return apierrors.IsConflict(err) || errors.Is(err, errGone) || errors.Is(err, errChanged)
}

// maxConflicts is how many looks in a row may end because another client was faster. More are
// reported: a client that writes an object all the time keeps the operator from its work.
const maxConflicts = 5

// conflicts counts looks in a row that ended because another client was faster.
type conflicts struct{ inARow atomic.Int32 }

// few reports whether the next conflict needs no report: fewer than maxConflicts came in a row.
func (c *conflicts) few() bool { return c.inARow.Load() < maxConflicts }

// ended is the result of a look: the next one is after a time, or soon if another client was
// faster. Other failures are returned.
func (c *conflicts) ended(after time.Duration, failures ...error) (ctrl.Result, error) {
	quiet := c.few()
	if slices.ContainsFunc(failures, meanwhile) {
		c.inARow.Add(1)
	} else {
		c.inARow.Store(0)
	}
	var others []error
	for _, err := range failures {
		switch {
		case err == nil:
		case meanwhile(err) && quiet:
			after = min(after, resyncMeanwhile)
		case meanwhile(err):
			others = append(others, fmt.Errorf("%w: this happens each time: find the client that keeps writing the object by its managedFields", err))
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
