// SPDX-License-Identifier: Apache-2.0

package embedded_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// mountSmall mounts an empty file system over the state directory.
func mountSmall(t *testing.T, h *home, flags uintptr, options string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("mounting a small disk takes root")
	}
	dir := filepath.Join(h.Dir, "state")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", flags, options); err != nil {
		t.Skipf("mounting is not permitted here: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Errorf("unmounting %s: %v", dir, err)
		}
	})
}

func TestFullDisk(t *testing.T) {
	h := newHome(t)
	mountSmall(t, h, 0, "size=64m")
	h.try("up").want(t, 1, "not enough room", filepath.Join(h.Dir, "state"), "MiB", "XDG_STATE_HOME")
	h.neverMade()
}

func TestReadOnlyDisk(t *testing.T) {
	h := newHome(t)
	mountSmall(t, h, syscall.MS_RDONLY, "size=1g")
	h.try("up").want(t, 1, "read-only file system", filepath.Join(h.Dir, "state"), "set XDG_STATE_HOME")
	h.neverMade()
}
