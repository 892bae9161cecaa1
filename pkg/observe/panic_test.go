// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"strings"
	"testing"
)

// TestPanicOfRead proves that a fault in what reads one thing makes that unknown, and ends no process.
func TestPanicOfRead(t *testing.T) {
	fact := inTime(t.Context(), func(context.Context) (map[string]int, error) {
		return map[string]int{"x": len((&Snapshot{}).Nodes.Value[0].Name)}, nil
	})
	if fact.Err == nil || fact.Value != nil || !strings.Contains(fact.Err.Error(), "index out of range") || !strings.Contains(fact.Err.Error(), "observe/panic_test.go:") {
		t.Errorf("got %+v", fact)
	}
}
