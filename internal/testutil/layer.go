// SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"fmt"
	"os"
	"testing"
	"time"
)

// LayerVariable names the environment variable that `make test` sets to [MainLayer].
const LayerVariable = "FAIRLEAD_TEST_LAYER"

// MainLayer is the layer that leaves out the tests that call [Full].
const MainLayer = "main"

// Main reports whether the tests run as a part of `make test`.
func Main() bool { return os.Getenv(LayerVariable) == MainLayer }

// Integration skips a test with -short. Reason says what the test needs, such as "kube-apiserver".
func Integration(t testing.TB, reason string) {
	t.Helper()
	if testing.Short() {
		t.Skip("integration test: needs " + reason)
	}
}

// Full skips a test with -short and in `make test`, because other tests show the main path of its package. Reason says why
// the test is left out, such as "kills the program at every effect".
func Full(t testing.TB, reason string) {
	t.Helper()
	if testing.Short() || Main() {
		t.Skip("only in make test-all: " + reason)
	}
}

// Limit lets a test and its subtests run for longer than the 60 seconds after which deploy/tools/testlimit ends a test
// that hangs. The limit is on each test by itself. It counts from the start of the test, without the time for which a parallel
// test waits for its turn.
func Limit(t testing.TB, limit time.Duration) {
	t.Helper()
	fmt.Printf("=== LIMIT %s %s\n", t.Name(), limit)
}
