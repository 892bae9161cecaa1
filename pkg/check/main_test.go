// SPDX-License-Identifier: Apache-2.0

package check

import (
	"os"
	"testing"

	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
)

// TestMain lets tests wait beside each other.
func TestMain(m *testing.M) { os.Exit(daemontest.RunParallel(m, 6)) }
