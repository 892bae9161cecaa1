// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/pkg/install"
)

// waiting is the message while another run has the lock. It does not name the run: each has another name, and would lead
// to a write of the status.
var waiting = fmt.Sprintf("another run changes the cluster and holds Lease %s/%s: the operator goes on when that run has ended", metav1.NamespaceSystem, install.LockName)

// isWaiting reports whether a look has ended because another run had the lock all the time. That is no failure.
func isWaiting(ctx context.Context, err error) bool {
	locked := (*install.LockedError)(nil)
	return errors.As(err, &locked) && ctx.Err() == nil
}
