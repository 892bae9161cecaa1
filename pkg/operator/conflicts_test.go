// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"errors"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestConflicts: a client that is faster now and then is no error. One that is faster each time is.
func TestConflicts(t *testing.T) {
	conflict := fmt.Errorf("write: %w", apierrors.NewConflict(schema.GroupResource{Resource: "bundles"}, "default", errors.New("changed")))
	var c conflicts
	for round := range 2 {
		for i := range maxConflicts {
			if result, err := c.ended(time.Minute, nil, conflict); err != nil || result.RequeueAfter != resyncMeanwhile || c.few() != (i+1 < maxConflicts) {
				t.Fatalf("conflict %d: %+v, %v, few: %v", i+1, result, err, c.few())
			}
		}
		for range 2 {
			if _, err := c.ended(time.Minute, conflict); !apierrors.IsConflict(err) {
				t.Fatalf("round %d: a conflict that comes back ends with %v", round, err)
			}
		}
		if result, err := c.ended(time.Minute, nil); err != nil || result.RequeueAfter != time.Minute || !c.few() {
			t.Fatalf("a look without a conflict: %+v, %v", result, err)
		}
	}
	if _, err := c.ended(time.Minute, conflict, errors.New("no rights")); err == nil || apierrors.IsConflict(err) {
		t.Errorf("another failure beside a conflict ends with %v", err)
	}
}
