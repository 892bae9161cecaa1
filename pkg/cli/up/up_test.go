// SPDX-License-Identifier: Apache-2.0

package up

import "testing"

func TestQuietShowsFailedChecksOnly(t *testing.T) {
	report := "Verifying x\n ✓ good\n     detail\n ✗ bad\n     reason\n     hint: mend it\n ✓ good\n     detail\n1 passed, 1 failed\n"
	if got, want := failures(report), " ✗ bad\n     reason\n     hint: mend it\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
