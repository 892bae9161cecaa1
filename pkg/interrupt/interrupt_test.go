package interrupt

import (
	"bufio"
	"context"
	"errors"
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
	fmt.Println("waiting")
	<-ctx.Done()
	fmt.Println("cleaning up")
	fmt.Fprintln(os.Stderr, "cleaning up")
	if err := os.WriteFile(mark, nil, 0o600); err != nil {
		os.Exit(2)
	}
	os.Exit(3)
}

// start runs the command; its output is closed before it is asked to end.
func start(t *testing.T, mark string, argv ...string) *exec.Cmd {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), envMark+"="+mark)
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	_ = w.Close()
	if line, err := bufio.NewReader(r).ReadString('\n'); line != "waiting\n" {
		t.Fatalf("it said %q, %v", line, err)
	}
	return cmd
}

func TestCleansUp(t *testing.T) {
	interrupttest.Hear(t)
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		t.Run(sig.String(), func(t *testing.T) {
			mark := filepath.Join(t.TempDir(), "clean")
			cmd := start(t, mark, os.Args[0])
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			var exit *exec.ExitError
			if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 3 {
				t.Errorf("it ended with %v, want exit code 3", err)
			}
			if _, err := os.Stat(mark); err != nil {
				t.Error("it has not cleaned up")
			}
		})
	}
}

// A command under nohup outlives its terminal, and still ends when it is told to.
func TestNohup(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "clean")
	cmd := start(t, mark, "sh", "-c", `trap "" HUP; exec "$0"`, os.Args[0])
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
