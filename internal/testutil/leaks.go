// SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"time"

	"go.uber.org/goleak"
)

// leakLimit is how long goroutines may take to end after the tests. A server of net/http keeps a connection for half a second after an
// answer to a request whose body it has not read, which on a busy machine is longer than goleak waits.
const leakLimit = 20 * time.Second

// VerifyNoLeaks is for TestMain: it runs the tests of a package, and fails if goroutines stay behind.
func VerifyNoLeaks(m goleak.TestingM, options ...goleak.Option) {
	goleak.VerifyTestMain(settling{m, options}, options...)
}

// settling runs tests, and waits until their goroutines have ended or the limit is over.
type settling struct {
	goleak.TestingM
	options []goleak.Option
}

func (s settling) Run() int {
	code := s.TestingM.Run()
	for deadline := time.Now().Add(leakLimit); code == 0 && goleak.Find(s.options...) != nil && time.Now().Before(deadline); {
		time.Sleep(interval)
	}
	return code
}
