// SPDX-License-Identifier: Apache-2.0

package fsutil

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Rewrite gives a user's file new content. A file that exists keeps its owner, its
// group and its mode; a new one gets mode. It replaces the file in one step where it
// can. A file that cannot be replaced, because it is a mount point or has further names
// or an owner that this process cannot give away, is written in place, with a copy of
// the old content next to path until that has ended well. path must not be a link.
func Rewrite(path string, data []byte, mode os.FileMode) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return WriteFile(path, data, mode)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || stat.Nlink > 1 {
		return pour(path, data)
	}
	err = replace(path, data, info.Mode().Perm(), func(tmp *os.File) error {
		return tmp.Chown(int(stat.Uid), int(stat.Gid))
	})
	if irreplaceable(err) {
		return pour(path, data)
	}
	return err
}

// irreplaceable reports whether an error says that another file cannot take this one's place.
func irreplaceable(err error) bool {
	for _, no := range []error{syscall.EBUSY, syscall.EXDEV, syscall.EPERM, syscall.EACCES, syscall.EROFS} {
		if errors.Is(err, no) {
			return true
		}
	}
	return false
}

// pour writes into the file as it is. Until it has ended well, the old content is in a
// file next to it, or in the directory for temporary files where none can be made there.
func pour(path string, data []byte) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("writing %s in place: %w", path, err)
		}
	}()
	old, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	// Refused before the copy is made: a file that may not be written needs none.
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	copied, err := backup(path, old)
	if err != nil {
		return errors.Join(err, file.Close())
	}
	if err = fill(file, data); err != nil {
		if undo := fill(file, old); undo != nil {
			return errors.Join(fmt.Errorf("%w: the old content is in %s", err, copied), file.Close())
		}
	}
	return errors.Join(err, file.Close(), os.Remove(copied))
}

// fill replaces the content of an open file.
func fill(file *os.File, data []byte) error {
	if _, err := file.WriteAt(data, 0); err != nil {
		return err
	}
	if err := file.Truncate(int64(len(data))); err != nil {
		return err
	}
	return file.Sync()
}

// backup keeps content where a crash does not reach it, for the owner only.
func backup(path string, content []byte) (string, error) {
	pattern := filepath.Base(path) + ".fairlead-backup.*"
	file, err := os.CreateTemp(filepath.Dir(path), pattern)
	if err != nil {
		file, err = os.CreateTemp("", pattern)
	}
	if err != nil {
		return "", err
	}
	err = errors.Join(fill(file, content), file.Close())
	if err != nil {
		_ = os.Remove(file.Name())
	}
	return file.Name(), err
}
