// SPDX-License-Identifier: Apache-2.0

package cmdutil_test

import (
	"errors"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/cmdutil"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/settings"
)

// TestDrainTimeout: an unset variable leaves the default, one that is no duration is
// refused rather than taken for one.
func TestDrainTimeout(t *testing.T) {
	for value, want := range map[string]time.Duration{"": 7 * time.Second, "0": 0, "0s": 0, "90s": 90 * time.Second} {
		t.Setenv(settings.DrainTimeout, value)
		if got, err := cmdutil.DrainTimeout(7 * time.Second); err != nil || got != want {
			t.Errorf("%q: got %v, %v, want %v", value, got, err, want)
		}
	}
	for _, value := range []string{"soon", "-1s", "5"} {
		t.Setenv(settings.DrainTimeout, value)
		if _, err := cmdutil.DrainTimeout(time.Second); !errors.Is(err, cmdutil.ErrDrainTimeout) {
			t.Errorf("%q: got %v, want ErrDrainTimeout", value, err)
		}
	}
}
