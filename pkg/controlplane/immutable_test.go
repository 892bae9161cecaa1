// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"errors"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/nodefs"
)

// immutable runs "chattr +i", or skips the test if the file system does not support
// it.
func immutable(t *testing.T, name string) (undo func()) {
	t.Helper()
	set := func(on bool) error {
		file, err := os.Open(name)
		if err != nil {
			return err
		}
		defer file.Close()
		flags, err := unix.IoctlGetInt(int(file.Fd()), unix.FS_IOC_GETFLAGS)
		if err != nil {
			return err
		}
		flags &^= unix.STATX_ATTR_IMMUTABLE
		if on {
			flags |= unix.STATX_ATTR_IMMUTABLE // the flags have the same values
		}
		return unix.IoctlSetPointerInt(int(file.Fd()), unix.FS_IOC_SETFLAGS, flags)
	}
	if err := set(true); err != nil {
		t.Skipf("chattr +i: %v", err)
	}
	undo = sync.OnceFunc(func() {
		if err := set(false); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(undo)
	return undo
}

// TestImmutable covers a hardened node with immutable files. Nothing changes, and
// the error does not advise root to become root.
func TestImmutable(t *testing.T) {
	root := testNode(t)
	undo := immutable(t, nodefs.Host{Root: root}.Path(apiServerFile))
	_, err := Install(t.Context(), testOptions(root))
	wantForbidden(t, err)
	undo()
	sameTrees(t, snapshot(t, pristine), snapshot(t, root))

	install(t, root)
	before := snapshot(t, root)
	undo = immutable(t, nodefs.Host{Root: root}.Path(v1alpha1.DefaultServerKubeconfig))
	_, err = Renew(t.Context(), RenewOptions{Options: testOptions(root)})
	wantForbidden(t, err)
	_, err = Uninstall(t.Context(), testOptions(root))
	wantForbidden(t, err)
	undo()
	sameTrees(t, before, snapshot(t, root))
	uninstall(t, root)
	sameTrees(t, snapshot(t, pristine), snapshot(t, root))
}

func wantForbidden(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, syscall.EPERM) || !strings.Contains(err.Error(), "chattr -i") || strings.Contains(err.Error(), "as root") {
		t.Errorf("%v", err)
	}
}

// TestExplain checks how the system's errors are explained to a user who is root
// already.
func TestExplain(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]string{
		syscall.ENOSPC: "free some space", syscall.EDQUOT: "free some space", syscall.EROFS: "mount it writable",
		syscall.EPERM: "immutable", syscall.EACCES: "SELinux",
	} {
		if got := explain(&os.PathError{Op: "open", Path: "/etc/x", Err: err}); !errors.Is(got, err) || !strings.Contains(got.Error(), want) || !strings.Contains(got.Error(), "/etc/x") {
			t.Errorf("%v", got)
		}
	}
}
