// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/fairlead-dev/fairlead/pkg/internal/logtest"
	"github.com/fairlead-dev/fairlead/pkg/internal/logthrottle"
)

// TestThrottledErrors: what keeps requests for metrics from being checked shows in the log, once, however many requests there are.
func TestThrottledErrors(t *testing.T) {
	var lines []string
	log := logr.New(throttled{logthrottle.New(logtest.New(func(_ int, line string) { lines = append(lines, line) }), time.Hour)})
	for range 100 {
		log.Error(errors.New("tokenreviews is forbidden"), "Authentication failed", "path", "/metrics")
		log.Info("a client came")
	}
	if len(lines) != 1 || !strings.Contains(lines[0], "tokenreviews is forbidden") {
		t.Errorf("logged %q, want one line with the reason", lines)
	}
}
