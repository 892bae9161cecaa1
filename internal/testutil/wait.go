// SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"testing"
	"time"
)

// interval is how long Eventually waits before it asks again.
const interval = 10 * time.Millisecond

// Eventually calls condition until it returns nil. After limit, it fails the test with the last error. In a bubble of
// testing/synctest the wait is virtual.
func Eventually(t testing.TB, limit time.Duration, condition func() error) {
	t.Helper()
	for deadline := time.Now().Add(limit); ; time.Sleep(interval) {
		err := condition()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not after %v: %v", limit, err)
		}
	}
}
