// SPDX-License-Identifier: Apache-2.0

// Package lockfile locks files, so that one command at a time works on what a file stands for.
package lockfile

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// ErrBusy is returned while another command works on the same cluster.
var ErrBusy = errors.New("another fairlead command is working on this cluster")

// Lock creates and locks a file in an existing directory, until unlock is
// called or the process ends. The holder of the lock may remove the file. LockFile
// fails with [ErrBusy] while another process holds the lock.
func Lock(path string) (unlock func(), err error) {
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
