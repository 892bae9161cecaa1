// SPDX-License-Identifier: Apache-2.0

package install

import "time"

// timing is how often a run asks the API server, and for how long it waits.
type timing struct {
	// poll is the interval of all waits that have no other one. It is short enough for users, and needs few requests.
	poll time.Duration

	// lockDuration is how long others wait after a run was killed. A run gives up after lockRenew if it cannot renew the lock.
	lockDuration, lockRenew time.Duration
	// lockRetry is how often a run tries to get the lock, or renews it.
	lockRetry time.Duration

	// unassigned is the interval of the questions whether an API server still applies a deleted policy.
	unassigned time.Duration
	// unassignedLimit bounds the wait if policies of other owners do the same.
	unassignedLimit time.Duration
	// unassignedBlind is the delay instead, for API servers that cannot be queried.
	unassignedBlind time.Duration
	// direct is the limit of a request to an API server that may not be reachable from here.
	direct time.Duration
}

// usual is the timing of all runs except in tests.
var usual = timing{
	poll:         time.Second,
	lockDuration: 10 * time.Second, lockRenew: 6 * time.Second, lockRetry: 500 * time.Millisecond,
	unassigned: 100 * time.Millisecond, unassignedLimit: 30 * time.Second, unassignedBlind: 3 * time.Second,
	direct: 2 * time.Second,
}
