// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ErrNoSpace is returned if the disk is too full to start.
var ErrNoSpace = errors.New("not enough room on the disk")

// OtherDisk is the advice of [CheckFree] for directories of fairlead's own.
const OtherDisk = "or set XDG_STATE_HOME and XDG_CACHE_HOME to another disk"

// CheckFree fails if a file system has less than need bytes available for this
// user. The error advises the user to make room, or to follow advice. It checks
// the nearest existing directory.
func CheckFree(dir string, need uint64, advice string) error {
	for {
		var fs unix.Statfs_t
		err := unix.Statfs(dir, &fs)
		if errors.Is(err, os.ErrNotExist) && dir != filepath.Dir(dir) {
			dir = filepath.Dir(dir)
			continue
		}
		if err != nil {
			return fmt.Errorf("looking for free space in %s: %w", dir, err)
		}
		if free := fs.Bavail * uint64(fs.Bsize); free < need {
			return fmt.Errorf("%w: %s has %d MiB free and at least %d MiB are needed: make room, %s",
				ErrNoSpace, dir, free>>20, need>>20, advice)
		}
		return nil
	}
}
