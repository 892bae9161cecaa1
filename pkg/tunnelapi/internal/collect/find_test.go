// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
)

// TestLastingLookupError: while one of two hosts cannot be looked up, its servers are kept, and those of the other host that
// are no longer found are forgotten after a while.
func TestLastingLookupError(t *testing.T) {
	now := time.Now()
	minute, lost := 0, false
	e := &Endpoints{URLs: []string{"https://moves:1", "https://lost:2"}, CAFile: t.TempDir(), Lookup: func(_ context.Context, host string) ([]string, error) {
		if host == "moves" {
			return []string{fmt.Sprintf("10.0.0.%d", minute)}, nil
		}
		if lost {
			return nil, errors.New("no such host")
		}
		return []string{"10.1.0.1", "10.1.0.2"}, nil
	}}
	c := New(Config{Finder: e, Agents: &sink{objects: map[string]runtime.Object{}}, Servers: &sink{objects: map[string]runtime.Object{}},
		AgentsPrefix: "/", ServersPrefix: "/", KeepGone: 5 * time.Minute, Now: func() time.Time { return now }})
	for range 60 {
		c.Round(t.Context())
		now = now.Add(time.Minute)
		minute, lost = minute+1, true
	}
	seen := slices.Sorted(maps.Keys(c.seen))
	want := []string{"10.0.0.54:1", "10.0.0.55:1", "10.0.0.56:1", "10.0.0.57:1", "10.0.0.58:1", "10.0.0.59:1", "10.1.0.1:2", "10.1.0.2:2"}
	if !slices.Equal(seen, want) {
		t.Errorf("after an hour, these servers are known: %v, want %v", seen, want)
	}
	if got := slices.Sorted(maps.Keys(e.askers)); !slices.Equal(got, want[len(want)-3:]) {
		t.Errorf("after an hour, there are clients of %v, want %v", got, want[len(want)-3:])
	}
	if err := c.found; err == nil {
		t.Error("the error is not noted")
	}
}
