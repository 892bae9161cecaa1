// SPDX-License-Identifier: Apache-2.0

// Package secretfile reads files that hold secrets, and refuses those that others can read, as
// ssh refuses private keys. Start with [Read].
package secretfile

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// ExposedError is the error for a file that others than its owner can use.
type ExposedError struct {
	Path string
	Mode fs.FileMode
}

// Error says what is wrong and what to do.
func (e *ExposedError) Error() string {
	return fmt.Sprintf("%s has mode %04o, so that other users of this machine can read the secret: run chmod 600 on it; in a Pod, set defaultMode: 0400 of the volume, or 0440 and an fsGroup if the Pod does not run as root", e.Path, e.Mode)
}

// CheckOwn returns an *ExposedError if a file is of this user and a group or others may do
// anything to it. It is for keys that are warned of: those in the volumes of Pods are root's and
// have mode 0644 by default, and are not this user's to change.
func CheckOwn(path string) error {
	info, err := os.Stat(path)
	if err != nil || !owned(info, os.Geteuid()) {
		return err
	}
	return check(path, info, os.Geteuid())
}

// check returns an *ExposedError if a file is of this user and a group or others may do
// anything to it, or if it is of another user and everyone may. A volume with defaultMode 0440
// is root's, and readable for the Pod's group.
func check(path string, info fs.FileInfo, uid int) error {
	forbidden := fs.FileMode(0o077)
	if !owned(info, uid) {
		forbidden = 0o007
	}
	if mode := info.Mode().Perm(); mode&forbidden != 0 {
		return &ExposedError{Path: path, Mode: mode}
	}
	return nil
}

func owned(info fs.FileInfo, uid int) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return !ok || int(stat.Uid) == uid
}

// Read returns the content of a file, or an *ExposedError if others can read it: if it is of
// this user and a group or others may do anything to it, or if it is of another user and
// everyone may. It judges the file that it reads.
func Read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Mode().IsRegular() { // a pipe, such as that of <(command), is this process's own
		if err := check(path, info, os.Geteuid()); err != nil {
			return nil, err
		}
	}
	return io.ReadAll(f)
}
