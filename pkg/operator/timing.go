// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"time"

	"github.com/fairlead-dev/fairlead/pkg/crd/migrate"
)

// timing is how often the operator looks, and for how long it waits.
type timing struct {
	// resyncReady and resyncNotReady are how long until a reconciler looks again when no event tells it to.
	resyncReady, resyncNotReady time.Duration
	// apply bounds the wait for another run of `fairlead install`.
	apply time.Duration
	// retryFirst is the pause after the first of several failures in a row. Each one doubles it, up to retryLast.
	retryFirst, retryLast time.Duration

	// keepEvery is how often a keeper looks when nothing tells it to.
	keepEvery time.Duration
	// keepAgain is how long until a keeper looks again after a failure. Failures in a row double it, up to keepEvery.
	keepAgain time.Duration
	// keepPause is between two looks of a keeper: who writes all the time does not keep it busy.
	keepPause time.Duration
	// settle is how long API servers may take to store objects in another version.
	settle time.Duration
}

// usual is the timing everywhere but in tests.
var usual = timing{
	resyncReady: 5 * time.Minute, resyncNotReady: 20 * time.Second,
	apply:      time.Minute,
	retryFirst: time.Second, retryLast: time.Minute,
	keepEvery: 10 * time.Minute, keepAgain: 20 * time.Second, keepPause: time.Second,
	settle: migrate.DefaultSettle,
}

// orUsual returns the timing, or the usual one if there is none.
func (t *timing) orUsual() timing {
	if t == nil {
		return usual
	}
	return *t
}
