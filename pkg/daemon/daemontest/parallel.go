// SPDX-License-Identifier: Apache-2.0

package daemontest

import (
	"testing"

	"github.com/fairlead-dev/fairlead/internal/testutil"
)

// RunParallel runs the tests of a package whose parallel tests wait most of the time, and returns the exit code for
// TestMain. At least n of them run at the same time; Go's default is the number of processors. The tests may share a control
// plane, as with [RunShared].
func RunParallel(m *testing.M, n int) int {
	testutil.Parallel(n)
	return RunShared(m)
}
