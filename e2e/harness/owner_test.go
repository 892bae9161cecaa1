// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// envOwner makes TestOwnerAsked say of this owner whether it is gone.
const envOwner = "HARNESS_TEST_OWNER"

func TestOwnerAsked(t *testing.T) {
	name := os.Getenv(envOwner)
	if name == "" {
		t.Skip("for TestOwnerGone")
	}
	fmt.Printf("\ngone: %v\n", ownerGone(name))
}

// The harness removes only what a killed run left behind. It removes nothing of
// a running process, of any user, and nothing of a process that it cannot see
// from here.
func TestOwnerGone(t *testing.T) {
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	pid := ended.Process.Pid
	for name, want := range map[string]bool{
		owner():                              false,
		owner() + "-123":                     false,
		fmt.Sprintf("%d-%s", pid, place()):   true,
		fmt.Sprintf("%d-%s-1", pid, place()): true,
		fmt.Sprintf("%d-%s", pid, "abcdef"):  false, // of another machine, another container, or before a restart
		fmt.Sprint(pid):                      false,
		fmt.Sprintf("%d-1234567890", pid):    false,
		"-1-" + place():                      false,
		"x-" + place():                       false,
	} {
		if got := ownerGone(name); got != want {
			t.Errorf("%s is gone: %v, want %v", name, got, want)
		}
	}
	if os.Geteuid() != 0 {
		return // the init process is root's: asked below
	}
	if out := askAs(t, owner(), &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}); !strings.Contains(out, "gone: false") {
		t.Errorf("another user takes this process for gone: %s", out)
	}
	// In another PID namespace this process's id has no meaning.
	if out := askAs(t, owner(), &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}); !strings.Contains(out, "gone: false") {
		t.Errorf("a process in a container takes this one for gone: %s", out)
	}
}

// askAs lets this test program ask in another process.
func askAs(t *testing.T, name string, attributes *syscall.SysProcAttr) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil { // for other users
		t.Fatal(err)
	}
	program := filepath.Join(dir, "program")
	if err := copyProgram(program); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-test.run=^TestOwnerAsked$")
	cmd.Dir, cmd.Env, cmd.SysProcAttr = "/", append(os.Environ(), envOwner+"="+name), attributes
	out, err := cmd.CombinedOutput()
	if errors.Is(err, syscall.EPERM) {
		t.Skip("the sandbox forbids other users or namespaces")
	}
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
	return string(out)
}

func copyProgram(to string) (err error) {
	from, err := os.Open(os.Args[0])
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	file, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(file, from); err != nil {
		return err
	}
	return file.Close()
}
