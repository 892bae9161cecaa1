// SPDX-License-Identifier: Apache-2.0

package server

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestHoldPoll: a client that reads its 200 soon gets the destination's bytes soon. For one that takes long, the server
// looks at most once a second in the long run, and adds little to the time that the client took.
func TestHoldPoll(t *testing.T) {
	for _, c := range []struct {
		reads, late time.Duration
		looks       int
	}{
		{reads: 0, looks: 1},
		{reads: 20 * time.Millisecond, late: holdPoll, looks: 200},
		{reads: 400 * time.Millisecond, late: 50 * time.Millisecond, looks: 300},
		{reads: time.Hour, late: holdPollMax, looks: 4000},
	} {
		t.Run(c.reads.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start, looks := time.Now(), 0
				pollWhile(func() bool {
					looks++
					return time.Since(start) < c.reads
				})
				if late := time.Since(start) - c.reads; late > c.late {
					t.Errorf("noticed the read after %v, want at most %v", late, c.late)
				}
				if looks > c.looks {
					t.Errorf("looked %d times, want at most %d", looks, c.looks)
				}
			})
		})
	}
}
