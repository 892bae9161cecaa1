// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"os"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/internal/kubeconfigfile"
)

// TestMain lets tests of stale locks wait no longer than they need to.
func TestMain(m *testing.M) {
	kubeconfigfile.LockWait = 200 * time.Millisecond
	os.Exit(m.Run())
}
