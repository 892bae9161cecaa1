// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
)

// terminal is a pseudoterminal of so many columns: what the program writes to its second end can be read from the first one.
func terminal(t *testing.T, columns uint16) (first, second *os.File) {
	t.Helper()
	first, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	fd := int(first.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 50, Col: columns}); err != nil {
		t.Fatal(err)
	}
	second, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return first, second
}

// output keeps what a program writes, and calls begun when that begins.
type output struct {
	text  bytes.Buffer
	begun func()
}

func (o *output) Write(data []byte) (int, error) {
	if o.begun != nil {
		o.begun()
		o.begun = nil
	}
	return o.text.Write(data)
}

func (o *output) String() string { return o.text.String() }

// newOutput is that of a command that has not started. A command that does not end by itself is interrupted when it has written
// for a moment, in which its spinner turns. None runs for more than a minute.
func newOutput(t *testing.T, cmd *exec.Cmd, endless bool) *output {
	t.Helper()
	interrupt := func() { _ = cmd.Process.Signal(os.Interrupt) }
	o := &output{}
	if endless {
		o.begun = func() { time.AfterFunc(500*time.Millisecond, interrupt) }
	}
	late := time.AfterFunc(time.Minute, func() { interrupt(); t.Errorf("%v runs for a minute", cmd.Args[1:]) })
	t.Cleanup(func() { late.Stop() })
	return o
}

// shownOn runs the program and returns what it writes to a terminal.
func shownOn(t *testing.T, endless bool, env, args []string) string {
	t.Helper()
	first, second := terminal(t, 80)
	defer first.Close()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "NO_COLOR=") || strings.HasPrefix(v, "COLUMNS=") }),
		append([]string{"TERM=xterm-256color", envMark + "=" + filepath.Join(t.TempDir(), "mark")}, env...)...)
	out := newOutput(t, cmd, endless)
	cmd.Stdout, cmd.Stderr = second, second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = second.Close()
	if _, err := io.Copy(out, first); err != nil && !errors.Is(err, syscall.EIO) { // which says that the program has ended
		t.Fatal(err)
	}
	ended(t, cmd)
	return out.String()
}

// TestEscapeSequences proves that no command writes an escape sequence to a terminal with TERM=dumb or with NO_COLOR, or to a pipe: the help of all
// commands, and those that look at a cluster or show progress, of which each has colors or a spinner on another terminal. With NO_COLOR, "status
// --watch" erases the screen, and writes no other sequence.
func TestEscapeSequences(t *testing.T) {
	file := daemontest.SharedControlPlane(t).Kubeconfig
	env := []string{"HOME=" + t.TempDir(), "KUBECONFIG=" + file}
	lively := map[string][]string{
		"progress": {"change"}, "check": {"check"}, "check short": {"check", "-o", "short"}, "diff": {"diff"}, "status watch": {"status", "--watch", "--kubeconfig", file},
		"verify": {"verify", "--only", "api-server|front-proxy"},
	}
	plain := map[string][]string{
		"status": {"status", "--kubeconfig", file}, "version": {"version"}, "list": {"list"}, "images": {"images"}, "verify list": {"verify", "--list"},
		"check list": {"check", "--list"}, "sysdump": {"sysdump", "-o", filepath.Join(t.TempDir(), "dump.tar.gz")}, "top": {"top"},
		"explain": {"check", "--explain", "FL-KON-001"}, "crd lint": {"crd", "lint"}, "error": {"check", "--timeout", "x"},
		"install": {"install", "--dry-run"}, "render": {"render", "-o", filepath.Join(t.TempDir(), "rendered")},
	}
	every(NewCommand(genericiooptions.NewTestIOStreamsDiscard()), nil, func(_ *cobra.Command, path []string) {
		plain["help of "+strings.Join(path, " ")] = append(slices.Clone(path), "--help")
	})
	home := regexp.MustCompile(`\x1b\[H\x1b\[2J`)
	test := func(name string, args []string, live bool) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if !live {
				testutil.Full(t, "these commands write no escape sequences to any terminal")
			}
			with := func(more ...string) []string { return append(slices.Clone(env), more...) }
			endless := live && (args[0] == "change" || args[0] == "status")
			if live && !strings.Contains(shownOn(t, endless, env, args), "\x1b[") {
				t.Error("no escape sequence on a terminal: the other results mean nothing")
			}
			for name, out := range map[string]string{"NO_COLOR": home.ReplaceAllString(shownOn(t, endless, with("NO_COLOR=1"), args), ""), "TERM=dumb": shownOn(t, endless, with("TERM=dumb"), args)} {
				if strings.TrimSpace(out) == "" || strings.Contains(out, "\x1b") {
					t.Errorf("%s: got %q", name, out)
				}
			}
			if out := piped(t, endless, env, args); strings.TrimSpace(out) == "" || strings.ContainsAny(out, "\x1b\r") {
				t.Errorf("in a pipe: got %q", out)
			}
		})
	}
	for name, args := range lively {
		test(name, args, true)
	}
	for name, args := range plain {
		test(name, args, false)
	}
}

// piped runs the program with both outputs in a pipe.
func piped(t *testing.T, endless bool, env, args []string) string {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(append(os.Environ(), "TERM=xterm-256color", envMark+"="+filepath.Join(t.TempDir(), "mark")), env...)
	out := newOutput(t, cmd, endless)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended(t, cmd)
	return out.String()
}
