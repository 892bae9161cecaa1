// SPDX-License-Identifier: Apache-2.0

package apiproxy

import (
	"os"
	"testing"

	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
)

// The parallel tests wait most of the time.
func TestMain(m *testing.M) { os.Exit(daemontest.RunParallel(m, 8)) }
