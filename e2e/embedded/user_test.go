// SPDX-License-Identifier: Apache-2.0

package embedded_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// userID runs commands as another user; nil means the user of the test.
type userID struct{ id uint32 }

func (u *userID) apply(cmd *exec.Cmd) {
	if u != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: u.id, Gid: u.id}}
		cmd.Dir = "/"
	}
}

// A cluster needs no privileges. If the tests themselves run without
// privileges, every other test shows that.
func TestOrdinaryUser(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("all tests run as an ordinary user already")
	}
	h := newHome(t)
	// Nothing of root's home is readable for others: give copies of the programs.
	h.user = &userID{id: 12345}
	h.Bin = filepath.Join(h.Dir, "bin")
	sources := []string{binDir, builtComponents(t)}
	for _, source := range sources {
		copyPrograms(t, source, h.Bin)
	}
	h.Env = append(h.Env, "XDG_CACHE_HOME="+h.Dir+"/cache", "PATH=/usr/bin:/bin")
	if err := filepath.WalkDir(h.Dir, func(path string, _ os.DirEntry, err error) error {
		if err == nil {
			err = os.Lchown(path, int(h.user.id), int(h.user.id))
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	h.must("up", "--component-dir", h.Bin)
	s := h.status("dev")
	for _, p := range s.Processes {
		info, err := os.Stat(filepath.Join("/proc", pidText(p.PID)))
		if err != nil || info.Sys().(*syscall.Stat_t).Uid != h.user.id {
			t.Errorf("%s does not run as the user (%v)", p.Name, err)
		}
	}
	h.must("down")
	h.nothingLeft("dev")
}

// copyPrograms copies all executables of a directory.
func copyPrograms(t *testing.T, from, to string) {
	t.Helper()
	if err := os.MkdirAll(to, 0o755); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(from)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !e.Type().IsRegular() || strings.HasPrefix(e.Name(), ".") || strings.HasSuffix(e.Name(), ".log") {
			continue
		}
		data, err := os.ReadFile(filepath.Join(from, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(to, e.Name()), data, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}
