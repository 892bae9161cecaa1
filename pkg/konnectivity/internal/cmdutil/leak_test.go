// SPDX-License-Identifier: Apache-2.0

package cmdutil_test

import (
	"testing"

	"github.com/fairlead-dev/fairlead/internal/testutil"
)

func TestMain(m *testing.M) { testutil.VerifyNoLeaks(m) }
