// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"fmt"
	"os"
	"syscall"

	"github.com/fairlead-dev/fairlead/pkg/fsutil"
)

// writeFile replaces a file atomically.
func writeFile(path string, data []byte, mode os.FileMode) error {
	return fsutil.WriteFile(path, data, mode)
}

// ownedAndPrivate refuses a directory that other users own or may write to: in
// /tmp, another user may have created it first.
func ownedAndPrivate(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() || int(stat.Uid) != os.Getuid() || info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%s: %w: remove it or set XDG_RUNTIME_DIR to a directory of yours", dir, ErrNotOwned)
	}
	return nil
}

// minFree is the disk space that a cluster needs to start: etcd's preallocated
// write-ahead log and database take 80 MiB, logs the rest.
const minFree = 256 << 20
