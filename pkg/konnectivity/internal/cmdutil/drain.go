// SPDX-License-Identifier: Apache-2.0

package cmdutil

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/settings"
)

// ErrDrainTimeout says that the value of variables.DrainTimeout is not a duration of
// zero or more.
var ErrDrainTimeout = errors.New("invalid drain timeout")

// DrainTimeout is the value of variables.DrainTimeout, or otherwise the default.
func DrainTimeout(otherwise time.Duration) (time.Duration, error) {
	value := os.Getenv(settings.DrainTimeout)
	if value == "" {
		return otherwise, nil
	}
	d, err := time.ParseDuration(value)
	if err != nil || d < 0 {
		return otherwise, fmt.Errorf("%w: %s=%q; use a duration like 20s", ErrDrainTimeout, settings.DrainTimeout, value)
	}
	return d, nil
}
