package shell_test

import (
	"errors"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/shell"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/variables"
)

// TestDrainTimeout: an unset variable leaves the default, one that is no duration is
// refused rather than taken for one.
func TestDrainTimeout(t *testing.T) {
	for value, want := range map[string]time.Duration{"": 7 * time.Second, "0": 0, "0s": 0, "90s": 90 * time.Second} {
		t.Setenv(variables.DrainTimeout, value)
		if got, err := shell.DrainTimeout(7 * time.Second); err != nil || got != want {
			t.Errorf("%q: got %v, %v, want %v", value, got, err, want)
		}
	}
	for _, value := range []string{"soon", "-1s", "5"} {
		t.Setenv(variables.DrainTimeout, value)
		if _, err := shell.DrainTimeout(time.Second); !errors.Is(err, shell.ErrDrainTimeout) {
			t.Errorf("%q: got %v, want ErrDrainTimeout", value, err)
		}
	}
}
