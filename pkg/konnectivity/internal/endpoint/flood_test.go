// SPDX-License-Identifier: Apache-2.0

package endpoint_test

import (
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/endpoint"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tunnel"
)

// TestResetBehindStuckQueue checks a destination that does not take the data sent before
// the frontend's reset, and that sends without end. The agent must not read it at full
// speed, because no receiver is left.
func TestResetBehindStuckQueue(t *testing.T) {
	r := newRig(t, endpoint.Config{}, 1<<30)
	r.data(make([]byte, 32<<20)) // more than the kernel's buffers hold
	go func() {
		for p := make([]byte, 256<<10); ; {
			if _, err := r.far.Write(p); err != nil {
				return
			}
		}
	}()
	r.Aborted(&tunnel.ResetError{Reason: "gone"})
	time.Sleep(100 * time.Millisecond) // the end takes effect
	begin := time.Now()
	_, before := r.Moved()
	time.Sleep(time.Second) // the time over which the rate is measured
	_, after := r.Moved()
	if rate := float64(after-before) / time.Since(begin).Seconds() / 1e6; rate > 60 {
		t.Errorf("reads %.0f MB/s without a receiver", rate)
	}
}
