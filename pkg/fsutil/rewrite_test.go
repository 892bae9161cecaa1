// SPDX-License-Identifier: Apache-2.0

package fsutil

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// left lists what is in the file's directory besides it.
func left(t *testing.T, path string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != filepath.Base(path) {
			names = append(names, e.Name())
		}
	}
	return names
}

// A file keeps its mode, and its owner where this process may give files away; a new
// one gets the mode that is asked for. Nothing stays next to it.
func TestRewriteKeepsOwnerAndMode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config")
	for _, want := range []os.FileMode{0o600, 0o640} {
		if want != 0o600 {
			if err := os.Chmod(path, want); err != nil {
				t.Fatal(err)
			}
		}
		if os.Geteuid() == 0 && want != 0o600 {
			if err := os.Chown(path, 1234, 4321); err != nil {
				t.Fatal(err)
			}
		}
		if err := Rewrite(path, []byte("new"), 0o600); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != want {
			t.Fatalf("mode %v, %v; want %v", info.Mode(), err, want)
		}
		stat := info.Sys().(*syscall.Stat_t)
		if os.Geteuid() == 0 && want != 0o600 && (stat.Uid != 1234 || stat.Gid != 4321) {
			t.Errorf("owner %d:%d, want 1234:4321", stat.Uid, stat.Gid)
		}
	}
	if names := left(t, path); len(names) > 0 {
		t.Errorf("left behind: %q", names)
	}
}

// A file with a second name stays the same file under both.
func TestRewriteKeepsHardLinks(t *testing.T) {
	path, other := filepath.Join(t.TempDir(), "config"), filepath.Join(t.TempDir(), "other")
	if err := errors.Join(os.WriteFile(path, []byte("a longer old content"), 0o600), os.Link(path, other)); err != nil {
		t.Fatal(err)
	}
	if err := Rewrite(path, []byte("new"), 0o600); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(other); err != nil || string(data) != "new" {
		t.Errorf("the other name has %q, %v", data, err)
	}
	if names := left(t, path); len(names) > 0 {
		t.Errorf("left behind: %q", names)
	}
}

const mountHelper = "FAIRLEAD_TEST_MOUNTED"

// A file that is a mount point cannot be replaced: it is written in place.
func TestRewriteOfAMountedFile(t *testing.T) {
	if path := os.Getenv(mountHelper); path != "" {
		if err := os.Rename(path+".tmp", path); !errors.Is(err, syscall.EBUSY) {
			t.Fatalf("rename: %v; this test needs a file that cannot be replaced", err)
		}
		if err := Rewrite(path, []byte("new"), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if err := exec.CommandContext(t.Context(), "unshare", "-rm", "true").Run(); err != nil {
		t.Skipf("no mount namespaces here: %v", err)
	}
	source, path := filepath.Join(t.TempDir(), "source"), filepath.Join(t.TempDir(), "config")
	for _, file := range []string{source, path, path + ".tmp"} {
		if err := os.WriteFile(file, []byte("a longer old content"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "unshare", "-rm", "sh", "-c", `mount --bind "$1" "$2" && exec "$0" -test.run='^TestRewriteOfAMountedFile$'`, os.Args[0], source, path)
	cmd.Env = append(os.Environ(), mountHelper+"="+path)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if data, err := os.ReadFile(source); err != nil || string(data) != "new" {
		t.Errorf("the mounted file has %q, %v", data, err)
	}
	if names := left(t, path); len(names) != 1 {
		t.Errorf("left behind: %q, want only the file of the test's own rename", names)
	}
}
