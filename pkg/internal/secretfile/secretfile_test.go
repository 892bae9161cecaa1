// SPDX-License-Identifier: Apache-2.0

package secretfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRead: a file of one's own is read only if no other user may use it, and the refusal says
// what to do.
func TestRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte("canary"), 0o600); err != nil {
		t.Fatal(err)
	}
	for mode, ok := range map[fs.FileMode]bool{0o600: true, 0o400: true, 0o700: true, 0o640: false, 0o604: false, 0o644: false, 0o620: false, 0o602: false, 0o666: false} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		data, err := Read(path)
		var exposed *ExposedError
		switch {
		case ok && (err != nil || string(data) != "canary"):
			t.Errorf("mode %04o: %q, %v", mode, data, err)
		case !ok && (!errors.As(err, &exposed) || !strings.Contains(err.Error(), "chmod 600") || strings.Contains(err.Error(), "canary") || data != nil):
			t.Errorf("mode %04o: %q, %v", mode, data, err)
		}
		if checked := CheckOwn(path); (checked == nil) != ok {
			t.Errorf("mode %04o: CheckOwn says %v", mode, checked)
		}
	}
	if _, err := Read(path + "-none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

// TestOthersFile: a file of another user may be readable for a group, as the volume of a Secret
// is, but not for everyone.
func TestOthersFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	for mode, ok := range map[fs.FileMode]bool{0o440: true, 0o640: true, 0o444: false, 0o644: false} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := check(path, info, os.Geteuid()+1); (err == nil) != ok {
			t.Errorf("mode %04o: %v", mode, err)
		}
		_ = os.Remove(path)
	}
}

// TestCheckOwnOfOthers: a file of another user is not this user's to protect.
func TestCheckOwnOfOthers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: only root can give a file to another user")
	}
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := CheckOwn(path); err == nil {
		t.Error("a file of this user passes")
	}
	if err := os.Chown(path, 65534, -1); err != nil {
		t.Fatal(err)
	}
	if err := CheckOwn(path); err != nil {
		t.Error(err)
	}
}
