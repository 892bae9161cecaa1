package agent

import "testing"

// A server that says a thousand times that it leaves is taken at its word once.
func TestServerLeavesOnce(t *testing.T) {
	logged := 0
	a := &Agent{changed: make(chan struct{}, 1), cfg: Config{Logf: func(int, string, ...any) { logged++ }}}
	c := &client{addr: "10.0.0.1:8132"}
	for range 1000 {
		a.serverLeaves(c)
	}
	if len(a.lost) != 1 || logged != 1 || !c.leaving {
		t.Errorf("its address is tried %d times, %d lines logged", len(a.lost), logged)
	}
}
