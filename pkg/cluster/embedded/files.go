package embedded

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/fairlead-dev/fairlead/pkg/fsutil"
)

// writeFile replaces a file in one step.
func writeFile(path string, data []byte, mode os.FileMode) error {
	return fsutil.WriteFile(path, data, mode)
}

// writeJSON writes v as indented JSON, readable for the owner only.
func writeJSON(path string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding %s: %w", path, err)
	}
	return writeFile(path, append(data, '\n'), 0o600)
}

// readJSON reads what writeJSON wrote.
func readJSON(path string, v any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	return nil
}

// ownedAndPrivate refuses a directory that others own or may write to; in /tmp
// somebody else may have made it first.
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

// minFree is the room that a cluster needs to start: etcd's preallocated
// write-ahead log and database take 80 MiB, logs the rest.
const minFree = 256 << 20

// ErrNoSpace says that the disk is too full to begin.
var ErrNoSpace = errors.New("not enough room on the disk")

// checkFree refuses a file system with less than need bytes left for this
// user. It looks at the nearest directory that exists.
func checkFree(dir string, need uint64) error {
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
			return fmt.Errorf("%w: %s has %d MiB free and at least %d MiB are needed: make room, or set XDG_STATE_HOME and XDG_CACHE_HOME to another disk",
				ErrNoSpace, dir, free>>20, need>>20)
		}
		return nil
	}
}
