// SPDX-License-Identifier: Apache-2.0

package components

import (
	"go/version"
	"testing"
)

func TestGoVersion(t *testing.T) {
	if got := GoVersion(); !version.IsValid("go"+got) || version.Compare("go"+got, "go1.26") < 0 {
		t.Errorf("GoVersion() = %q, want 1.26 or newer", got)
	}
}
