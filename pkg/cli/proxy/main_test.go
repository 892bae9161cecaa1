// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"os"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/cli"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
)

// asFairlead makes this test binary the program fairlead, so that signals and exit codes
// are those of a real process.
const asFairlead = "PROXY_TEST_AS_FAIRLEAD"

func TestMain(m *testing.M) {
	if os.Getenv(asFairlead) != "" {
		_ = os.Unsetenv(asFairlead)
		os.Exit(cli.Main(os.Args[1:], genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}))
	}
	testutil.Parallel(8) // the parallel tests wait for silent clients
	os.Exit(daemontest.RunShared(m))
}
