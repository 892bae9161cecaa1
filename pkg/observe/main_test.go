// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"os"
	"testing"

	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
)

func TestMain(m *testing.M) { os.Exit(daemontest.RunShared(m)) }
