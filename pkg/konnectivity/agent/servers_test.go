// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"testing"
	"time"
)

// TestPauseOfUnresolvedName: a name that does not resolve is asked for about every
// second at first, and then less and less often.
func TestPauseOfUnresolvedName(t *testing.T) {
	cfg := &Config{SyncInterval: 2 * time.Second}
	cfg.defaults()
	var u resolution
	failed := errors.New("no such host")
	about := func(got, want time.Duration) {
		t.Helper()
		if got < want || got > want*5/4 {
			t.Errorf("a pause of %v, want about %v", got, want)
		}
	}
	for range 40 {
		about(u.pause(failed, cfg), time.Second)
	}
	u.since = time.Now().Add(-unresolvedSoon)
	about(u.pause(failed, cfg), 3*time.Second/2)
	for range 10 {
		u.pause(failed, cfg)
	}
	about(u.pause(failed, cfg), cfg.SyncIntervalCap)
	about(u.pause(nil, cfg), cfg.SyncInterval)
	about(u.pause(failed, cfg), time.Second)
}
