// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ErrBusy is returned while another command works on the same cluster.
var ErrBusy = errors.New("another fairlead command is working on this cluster")

// writableState is the hint if the state directory is not writable.
const writableState = "set XDG_STATE_HOME to a directory that you may write to"

// Lock takes the cluster's lock for one command. The kernel releases it when the
// process ends, however it ends.
func (h Home) Lock() (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(h.LockFile()), 0o700); err != nil {
		return nil, fmt.Errorf("creating the state directory: %w: %s", err, writableState)
	}
	unlock, err = LockFile(h.LockFile())
	switch {
	case errors.Is(err, ErrBusy):
		return nil, fmt.Errorf("%w: cluster %q: wait for it to end, or choose another --name", ErrBusy, h.Name)
	case err != nil:
		return nil, fmt.Errorf("locking cluster %q: %w: %s", h.Name, err, writableState)
	}
	return unlock, nil
}

// LockFile creates and locks a file in an existing directory, until unlock is
// called or the process ends. The holder of the lock may remove the file. LockFile
// fails with [ErrBusy] while another process holds the lock.
func LockFile(path string) (unlock func(), err error) {
	for {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, err
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			_ = f.Close()
			if errors.Is(err, unix.EWOULDBLOCK) {
				return nil, ErrBusy
			}
			return nil, fmt.Errorf("locking %s: %w", path, err)
		}
		if sameFile(f, path) {
			return func() { _ = f.Close() }, nil
		}
		_ = f.Close() // The holder removed the file between opening and locking it: lock the new one.
	}
}

// sameFile reports whether path still names the open file.
func sameFile(f *os.File, path string) bool {
	mine, err := f.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(path)
	return err == nil && os.SameFile(mine, there)
}
