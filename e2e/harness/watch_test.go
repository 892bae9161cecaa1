// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/interrupt/interrupttest"
)

// envWatched makes TestWatched a run of tests that has something to remove; the
// value is the file that it makes once that is done.
const envWatched = "HARNESS_TEST_WATCHED"

func TestWatched(t *testing.T) {
	mark := os.Getenv(envWatched)
	if mark == "" {
		t.Skip("for TestInterruptedSuite")
	}
	s := &Suite{done: func() { _ = os.WriteFile(mark, nil, 0o600) }}
	defer s.watch(func() {})()
	fmt.Println("\n" + interrupttest.Waiting)
	time.Sleep(time.Minute)
}

// An interrupted run removes its cluster, also when its terminal is closed and
// when its output pipe is closed.
func TestInterruptedSuite(t *testing.T) {
	interrupttest.CleansUp(t, 130, func(mark string) *exec.Cmd {
		cmd := exec.Command(os.Args[0], "-test.run=^TestWatched$")
		cmd.Env = append(os.Environ(), envWatched+"="+mark)
		return cmd
	})
}
