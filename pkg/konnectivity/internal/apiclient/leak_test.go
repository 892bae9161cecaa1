// SPDX-License-Identifier: Apache-2.0

package apiclient

import (
	"testing"

	"github.com/fairlead-dev/fairlead/internal/testutil"
)

func TestMain(m *testing.M) { testutil.VerifyNoLeaks(m) }
