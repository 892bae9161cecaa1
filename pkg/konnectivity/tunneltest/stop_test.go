// SPDX-License-Identifier: Apache-2.0

package tunneltest

import (
	"context"
	"errors"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
)

// TestStopServesWhoCame checks that, while a server stops, its socket is either gone or
// accepted by the server: no client connects and is then reset without an answer.
func TestStopServesWhoCame(t *testing.T) {
	t.Parallel()
	for range 10 {
		r := NewRig(t, server.Config{})
		r.StartAgent(agent.Config{}, "")
		addr := Target(t, Echo)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				var err error
				for err == nil {
					err = roundTrip(Connect(r.Connect), addr)
				}
				if !errors.Is(err, syscall.ENOENT) {
					t.Errorf("a dial ended with %v, want it served or to find no socket", err)
				}
			})
		}
		time.Sleep(20 * time.Millisecond) // dials run while the server stops
		ctx, cancel := context.WithTimeout(t.Context(), Patience)
		r.Shutdown(ctx)
		cancel()
		wg.Wait()
	}
}
