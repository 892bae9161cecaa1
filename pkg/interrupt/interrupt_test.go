// SPDX-License-Identifier: Apache-2.0

package interrupt

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/interrupt/interrupttest"
)

// envMark makes this test binary a command that is asked to end; its value is the file that it makes once it has cleaned up.
const envMark = "INTERRUPT_TEST_MARK"

func TestMain(m *testing.M) {
	mark := os.Getenv(envMark)
	if mark == "" {
		os.Exit(m.Run())
	}
	ctx, stop := Context(context.Background())
	defer stop()
	fmt.Println(interrupttest.Waiting)
	<-ctx.Done()
	fmt.Println("cleaning up")
	fmt.Fprintln(os.Stderr, "cleaning up")
	if err := os.WriteFile(mark, nil, 0o600); err != nil {
		os.Exit(2)
	}
	os.Exit(3)
}

// command is the command, which makes the file mark.
func command(mark string, argv ...string) *exec.Cmd {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), envMark+"="+mark)
	return cmd
}

func TestCleansUp(t *testing.T) {
	interrupttest.CleansUp(t, 3, func(mark string) *exec.Cmd { return command(mark, os.Args[0]) })
}

// A command under nohup survives the end of its terminal, and still ends on SIGTERM.
func TestNohup(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "clean")
	cmd := command(mark, "sh", "-c", `trap "" HUP; exec "$0"`, os.Args[0])
	interrupttest.Start(t, cmd)
	if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	time.Sleep(200 * time.Millisecond)
	if _, err := os.Stat(mark); err == nil {
		t.Error("a closed terminal ends it")
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if _, err := os.Stat(mark); err != nil {
		t.Error("it has not cleaned up")
	}
}

// Programs that a command starts have their pipes as always: `yes | head` has to end.
func TestChildrenHavePipes(t *testing.T) {
	OutlivePipes()
	defer signal.Reset(syscall.SIGPIPE)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command("sh", "-c", `while echo y; do :; done`)
	child.Stdout = w
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	_, _ = w.Close(), r.Close()
	_ = child.Wait()
	if status := child.ProcessState.Sys().(syscall.WaitStatus); !status.Signaled() || status.Signal() != syscall.SIGPIPE {
		t.Errorf("it ended with %v, want SIGPIPE", child.ProcessState)
	}
}
