package shell

import (
	"errors"
	"fmt"
	"os"
	"time"
)

// DrainTimeoutVariable is the environment variable that overrides the default of
// --graceful-shutdown-timeout; its value is a duration like "20s". Keep it some
// seconds below the Pod's terminationGracePeriodSeconds. A variable, unlike a flag,
// does no harm to images of the reference programs, some of which lack the flag.
const DrainTimeoutVariable = "FAIRLEAD_DRAIN_TIMEOUT"

// ErrDrainTimeout says that the value of DrainTimeoutVariable is not a duration of
// zero or more.
var ErrDrainTimeout = errors.New("invalid drain timeout")

// DrainTimeout is the value of DrainTimeoutVariable, or otherwise the default.
func DrainTimeout(otherwise time.Duration) (time.Duration, error) {
	value := os.Getenv(DrainTimeoutVariable)
	if value == "" {
		return otherwise, nil
	}
	d, err := time.ParseDuration(value)
	if err != nil || d < 0 {
		return otherwise, fmt.Errorf("%w: %s=%q; use a duration like 20s", ErrDrainTimeout, DrainTimeoutVariable, value)
	}
	return d, nil
}
