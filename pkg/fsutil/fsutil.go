// SPDX-License-Identifier: Apache-2.0

// Package fsutil writes files so that nothing is ever half-written.
package fsutil

import (
	"fmt"
	"os"
	"path/filepath"
)

// WriteFile replaces a file in one step: readers see the old content or the
// new one, and a full disk or a crash leaves the old one. The error names the
// file.
func WriteFile(path string, data []byte, mode os.FileMode) error {
	return replace(path, data, mode, func(*os.File) error { return nil })
}

// replace puts a new file in the place of the one at path; prepare may change the new
// one before.
func replace(path string, data []byte, mode os.FileMode, prepare func(*os.File) error) (err error) {
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(tmp.Name())
			err = fmt.Errorf("writing %s: %w", path, err)
		}
	}()
	// The owner first: giving a file away takes bits of its mode.
	if err = prepare(tmp); err == nil {
		err = tmp.Chmod(mode)
	}
	if err == nil {
		_, err = tmp.Write(data)
	}
	if err == nil {
		err = tmp.Sync()
	}
	if closeErr := tmp.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}
