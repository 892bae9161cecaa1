package harness

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
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
	fmt.Println("\nwaiting")
	time.Sleep(time.Minute)
}

// An interrupted run removes its cluster: also when its terminal is closed, and
// when nobody reads any more what it says about it.
func TestInterruptedSuite(t *testing.T) {
	interrupttest.Hear(t)
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		t.Run(sig.String(), func(t *testing.T) {
			mark := filepath.Join(t.TempDir(), "removed")
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(os.Args[0], "-test.run=^TestWatched$")
			cmd.Env = append(os.Environ(), envWatched+"="+mark)
			cmd.Stdout, cmd.Stderr = w, w
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			_ = w.Close()
			lines := bufio.NewScanner(r)
			for lines.Scan() && lines.Text() != "waiting" {
			}
			_ = r.Close()
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			var exit *exec.ExitError
			if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 130 {
				t.Errorf("it ended with %v, want exit code 130", err)
			}
			if _, err := os.Stat(mark); err != nil {
				t.Error("nothing was removed")
			}
		})
	}
}
