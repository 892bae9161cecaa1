// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-dev/fairlead/pkg/internal/logtest"
)

// A server that says a thousand times that it leaves is taken at its word once.
func TestServerLeavesOnce(t *testing.T) {
	logged := 0
	a := &Agent{changed: make(chan struct{}, 1), cfg: Config{Logger: logtest.New(func(int, string) { logged++ })}}
	c := &client{addr: "10.0.0.1:8132"}
	for range 1000 {
		a.serverLeaves(c)
	}
	if len(a.lost) != 1 || logged != 1 || !c.leaving {
		t.Errorf("its address is tried %d times, %d lines logged", len(a.lost), logged)
	}
}

// TestThinServers checks that the agent opens further links to servers that have too few
// links that are not draining, however many are draining. A server whose links are all
// draining counts as missing instead.
func TestThinServers(t *testing.T) {
	stays := func(id string) *client { return &client{serverID: id, addr: id + ".test:1", links: 2, count: 4} }
	leaves := func(id string) *client { c := stays(id); c.leaving = true; return c }
	a := New(Config{}, NewMetrics())
	a.clients = []*client{
		stays("whole"), stays("whole"), leaves("whole"),
		leaves("thin"), leaves("thin"), stays("thin"),
		stays("one left"), leaves("one left"),
		leaves("lost"), leaves("lost"),
	}
	want := map[string]string{"thin": "thin.test:1", "one left": "one left.test:1"}
	if diff := cmp.Diff(want, a.thinServers()); diff != "" {
		t.Errorf("thin servers (-want +got):\n%s", diff)
	}
	if n := a.missing(); n != 1 {
		t.Errorf("%d servers are missing, want 1: the one of which all links leave", n)
	}
}
