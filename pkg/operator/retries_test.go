// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// TestRetries: looks that fail for hours go on once a minute at least, and not all the time.
func TestRetries(t *testing.T) {
	limiter := retries(usual)
	request := reconcile.Request{}
	total := time.Duration(0)
	for range 20 {
		pause := limiter.When(request)
		if pause < time.Second || pause > time.Minute {
			t.Errorf("a pause of %v", pause)
		}
		total += pause
	}
	if total > 20*time.Minute {
		t.Errorf("20 failures took %v", total)
	}
	limiter.Forget(request)
	if pause := limiter.When(request); pause != time.Second {
		t.Errorf("after a success the pause is %v", pause)
	}
}
