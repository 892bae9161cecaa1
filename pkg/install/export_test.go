// SPDX-License-Identifier: Apache-2.0

package install

import "time"

// quick is the timing of tests. The lock keeps its limits, so that a slow machine does not lose it.
var quick = timing{
	poll:         20 * time.Millisecond,
	lockDuration: usual.lockDuration, lockRenew: usual.lockRenew, lockRetry: 50 * time.Millisecond,
	unassigned: 20 * time.Millisecond, unassignedLimit: usual.unassignedLimit, unassignedBlind: usual.unassignedBlind,
	direct: usual.direct,
}

// Quick has a run poll often.
func (o Options) Quick() Options {
	o.timing = &quick
	return o
}

// Quick has a run poll often.
func (o UninstallOptions) Quick() UninstallOptions {
	o.timing = &quick
	return o
}
