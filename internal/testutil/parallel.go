// SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"flag"
	"strconv"
)

// Parallel lets at least n parallel tests of this package run at the same time. Go's default is the number of processors,
// which is too few for tests that wait most of the time. TestMain calls it before it runs the tests.
func Parallel(n int) {
	flag.Parse()
	f := flag.Lookup("test.parallel")
	if now, err := strconv.Atoi(f.Value.String()); err == nil && now < n {
		_ = f.Value.Set(strconv.Itoa(n)) // a number is valid
	}
}
