// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"errors"
	"io"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// TestTryPort: a port is taken if a program goes on listening on it, and not if another check listens there for an instant.
func TestTryPort(t *testing.T) {
	for busy, taken := range map[int]bool{0: false, 1: false, portTries - 1: false, portTries: true, 1000: true} {
		synctest.Test(t, func(t *testing.T) {
			calls := 0
			begin := time.Now()
			err := tryPort(t.Context(), func(context.Context) (io.Closer, error) {
				if calls++; calls <= busy {
					return nil, syscall.EADDRINUSE
				}
				return io.NopCloser(nil), nil
			})
			if taken != errors.Is(err, syscall.EADDRINUSE) || !taken && err != nil {
				t.Errorf("busy %d times: %v", busy, err)
			}
			if waited := time.Since(begin); waited > portTries*portPause {
				t.Errorf("busy %d times: the check took %v", busy, waited)
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := tryPort(ctx, func(context.Context) (io.Closer, error) { return nil, syscall.EADDRINUSE }); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a check that was stopped: %v", err)
	}
}
