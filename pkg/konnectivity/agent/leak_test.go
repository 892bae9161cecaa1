// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"testing"

	"github.com/fairlead-dev/fairlead/internal/testutil"
)

func TestMain(m *testing.M) {
	testutil.Parallel(8) // parallel tests wait most of the time
	testutil.VerifyNoLeaks(m)
}
