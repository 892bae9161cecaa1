// SPDX-License-Identifier: Apache-2.0

package sysdump_test

import (
	"os"
	"testing"

	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
)

// TestMain lets tests wait beside each other: each collection waits for what does not answer.
func TestMain(m *testing.M) { os.Exit(daemontest.RunParallel(m, 6)) }
