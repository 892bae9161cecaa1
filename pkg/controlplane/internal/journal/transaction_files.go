// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/nodefs"
)

// stageChange keeps the old file under a second name, a hard link that needs no disk
// space and keeps all attributes, and writes the new file next to it.
func (t *Transaction) stageChange(c Change) error {
	if c.Old != nodefs.Absent {
		if err := t.keepOld(c, nodefs.Beside(nodefs.OldPrefix, c.Path)); err != nil {
			return err
		}
	}
	if c.Backup != "" {
		if err := os.MkdirAll(t.Follow(BackupDir), 0o700); err != nil {
			return t.Strip(err)
		}
		if err := t.Write(c.Backup, c.BackupData, 0o600, nil); err != nil {
			return err
		}
	}
	if c.Remove {
		return nil
	}
	return t.Write(nodefs.Beside(nodefs.NewPrefix, c.Path), c.Data, c.Mode, t.Owner(c.Path))
}

// keepOld creates the second name. It copies the file if the file system does not
// support hard links, or if the file itself will be written to.
func (t *Transaction) keepOld(c Change, to string) error {
	from := c.Path
	if err := os.Remove(t.Path(to)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return t.Strip(err)
	}
	if !c.InPlace && os.Link(t.Path(from), t.Path(to)) == nil {
		return nil
	}
	info, err := os.Stat(t.Path(from))
	if err != nil {
		return t.Strip(err)
	}
	data, err := t.Read(from)
	if err != nil {
		return err
	}
	mode := info.Mode()
	if c.InPlace {
		mode = nodefs.OnlyOwner(mode) // this copy restores only the content
	}
	return t.Write(to, data, mode, t.Owner(from))
}

// apply applies the file changes of a step.
func (t *Transaction) apply(step Step) error {
	for _, c := range t.Changes {
		if c.Step != step {
			continue
		}
		if err := t.applyChange(c); err != nil {
			return err
		}
		t.SyncDir(filepath.Dir(c.Path))
		t.reached("applied %s", c.Path)
	}
	return nil
}

func (t *Transaction) applyChange(c Change) error {
	now, err := t.Fingerprint(c.Path)
	switch {
	case err != nil:
		return err
	case now == c.New:
		return nil // an earlier run applied it
	case now != c.Old && !t.halfWritten(c):
		return fmt.Errorf("%s %w", c.Path, ErrEdited)
	case c.InPlace:
		return t.pour(nodefs.Beside(nodefs.NewPrefix, c.Path), c.Path, c.Mode)
	case c.Remove:
		return t.Strip(os.Remove(t.Path(c.Path)))
	}
	return t.Rename(nodefs.Beside(nodefs.NewPrefix, c.Path), c.Path)
}

// revert rolls back the file changes of a step. It leaves a file that another
// program or a person has changed since, and names it in the error. It restores the
// others.
func (t *Transaction) revert(step Step) error {
	var errs []error
	for _, c := range slices.Backward(t.Changes) {
		if c.Step != step {
			continue
		}
		err := t.revertChange(c)
		if errors.Is(err, ErrEdited) && t.LeaveEdited {
			t.Left, err = append(t.Left, c.Path), nil
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		t.SyncDir(filepath.Dir(c.Path))
		t.reached("reverted %s", c.Path)
	}
	return errors.Join(errs...)
}

func (t *Transaction) revertChange(c Change) error {
	now, err := t.Fingerprint(c.Path)
	switch {
	case err != nil:
		return err
	case now == c.Old:
		return t.Clear(c.Path)
	case now != c.New && c.Step == StepAPIServer:
		return t.revertEditedManifest(c, now)
	case now != c.New && !t.halfWritten(c):
		return fmt.Errorf("%s %w and is left as it is", c.Path, ErrEdited)
	case c.InPlace:
		return t.pour(nodefs.Beside(nodefs.OldPrefix, c.Path), c.Path, nodefs.ModeOf(c.Old))
	case c.Old == nodefs.Absent:
		return t.Strip(os.Remove(t.Path(c.Path)))
	}
	return t.Rename(nodefs.Beside(nodefs.OldPrefix, c.Path), c.Path)
}

// pour writes the content of one file into another, which stays the same inode. If a
// kill leaves the file half written, the next run writes it again. pour removes the
// permissions of group and others before it writes, so a user whom only the old mode
// lets read the file cannot read the new content.
func (t *Transaction) pour(from, to string, mode fs.FileMode) error {
	data, err := t.Read(from)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(t.Path(to), os.O_WRONLY, 0)
	if err != nil {
		return t.Strip(err)
	}
	if err = file.Chmod(nodefs.OnlyOwner(mode)); err == nil {
		_, err = file.Write(data)
	}
	if err == nil {
		err = file.Truncate(int64(len(data)))
	}
	if err == nil {
		err = file.Chmod(mode)
	}
	if err == nil {
		err = file.Sync()
	}
	return t.Strip(errors.Join(err, file.Close()))
}
