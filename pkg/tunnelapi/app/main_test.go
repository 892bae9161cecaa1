// SPDX-License-Identifier: Apache-2.0

package app

import (
	"os"
	"testing"

	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
)

// TestMain lets tests wait beside each other: most of their time goes into the generic API server's own waits.
func TestMain(m *testing.M) { os.Exit(daemontest.RunParallel(m, 6)) }
