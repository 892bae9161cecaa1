// SPDX-License-Identifier: Apache-2.0

package broken

import "testing"

func TestBroken(t *testing.T) { t.Log(undefined) }
