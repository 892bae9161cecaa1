// SPDX-License-Identifier: Apache-2.0

package daemontest

import (
	"flag"
	"strconv"
	"testing"
)

// RunParallel runs the tests of a package whose parallel tests wait most of the time, and returns the exit code for
// TestMain. At least n of them run at the same time; Go's default is the number of processors.
func RunParallel(m *testing.M, n int) int {
	flag.Parse()
	f := flag.Lookup("test.parallel")
	if now, err := strconv.Atoi(f.Value.String()); err == nil && now < n {
		_ = f.Value.Set(strconv.Itoa(n)) // a number is valid
	}
	return m.Run()
}
