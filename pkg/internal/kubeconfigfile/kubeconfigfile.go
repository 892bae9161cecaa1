// SPDX-License-Identifier: Apache-2.0

// Package kubeconfigfile changes kubeconfig files that other programs change, too.
package kubeconfigfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/fsutil"
)

// Change changes one kubeconfig file under the lock that kubectl also uses. It
// preserves the file's owner and mode. It calls change with the content, which is nil if
// there is no file, and writes the content that change returns. If that is nil, the file
// stays as it is; if its length is 0, the file is removed.
func Change(file string, change func(old []byte) ([]byte, error)) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return fmt.Errorf("writing kubeconfig %s: %w", file, err)
	}
	unlock, err := Lock(file)
	if err != nil {
		return err
	}
	defer unlock()
	old, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return Unreadable(file, err)
	}
	data, err := change(old)
	switch {
	case err != nil || data == nil:
		return err
	case len(data) == 0:
		return os.Remove(Resolve(file))
	}
	return fsutil.Rewrite(Resolve(file), data, 0o600)
}

// Resolve follows links, so that a link stays a link.
func Resolve(file string) string {
	if target, err := filepath.EvalSymlinks(file); err == nil {
		return target
	}
	return file
}

// Unreadable is the error of a file that cannot be read.
func Unreadable(file string, err error) error {
	return fmt.Errorf("read kubeconfig %s: %w: correct the file, or choose another one with --kubeconfig or $KUBECONFIG", file, err)
}

// LockWait is how long to wait for another program's change; kubectl takes milliseconds. Tests set it.
var LockWait = 5 * time.Second

// Lock locks a file under the given name, as kubectl does. If that is a link,
// it also locks the target's name, for programs that use that name.
func Lock(file string) (func(), error) {
	unlock, err := lockName(file)
	target := Resolve(file)
	if err != nil || target == file || sameName(target, file) {
		return unlock, err
	}
	unlockTarget, err := lockName(target)
	switch {
	case err == nil:
		return func() { unlockTarget(); unlock() }, nil
	case errors.Is(err, ErrLocked):
		unlock()
		return nil, err
	}
	// No program can create a lock there.
	return unlock, nil
}

// sameName reports whether two names of a file share a lock file.
func sameName(a, b string) bool {
	return filepath.Base(a) == filepath.Base(b) && Resolve(filepath.Dir(a)) == Resolve(filepath.Dir(b))
}

// ErrLocked is returned while another program changes the file.
var ErrLocked = errors.New("locked")

// lockName takes kubectl's lock: a file that must not exist yet.
func lockName(file string) (unlock func(), err error) {
	lock := file + ".lock"
	for deadline := time.Now().Add(LockWait); ; time.Sleep(20 * time.Millisecond) {
		f, err := os.OpenFile(lock, os.O_CREATE|os.O_EXCL, 0)
		if err == nil {
			_ = f.Close()
			return func() { _ = os.Remove(lock) }, nil
		}
		if !errors.Is(err, os.ErrExist) {
			return nil, fmt.Errorf("locking kubeconfig %s: %w: make its directory writable, or choose another file with --kubeconfig or $KUBECONFIG", file, err)
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("kubeconfig %s is %w: if no kubectl or fairlead is at work on it, remove the stale %s", file, ErrLocked, lock)
		}
	}
}
