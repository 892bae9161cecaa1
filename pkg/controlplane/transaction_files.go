// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// stageChange keeps the old file under a second name, a hard link that needs no disk
// space and keeps all attributes, and writes the new file next to it.
func (t *transaction) stageChange(c Change) error {
	if c.Old != absent {
		if err := t.keepOld(c, beside(oldPrefix, c.Path)); err != nil {
			return err
		}
	}
	if c.Backup != "" {
		if err := os.MkdirAll(t.follow(backupDir), 0o700); err != nil {
			return t.strip(err)
		}
		if err := t.write(c.Backup, c.BackupData, 0o600, nil); err != nil {
			return err
		}
	}
	if c.Remove {
		return nil
	}
	return t.write(beside(newPrefix, c.Path), c.Data, c.Mode, t.owner(c.Path))
}

// keepOld creates the second name. It copies the file if the file system does not
// support hard links, or if the file itself will be written to.
func (t *transaction) keepOld(c Change, to string) error {
	from := c.Path
	if err := os.Remove(t.path(to)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return t.strip(err)
	}
	if !c.InPlace && os.Link(t.path(from), t.path(to)) == nil {
		return nil
	}
	info, err := os.Stat(t.path(from))
	if err != nil {
		return t.strip(err)
	}
	data, err := t.read(from)
	if err != nil {
		return err
	}
	mode := info.Mode()
	if c.InPlace {
		mode = onlyOwner(mode) // this copy restores only the content
	}
	return t.write(to, data, mode, t.owner(from))
}

// apply applies the file changes of a step.
func (t *transaction) apply(step Step) error {
	for _, c := range t.Changes {
		if c.Step != step {
			continue
		}
		if err := t.applyChange(c); err != nil {
			return err
		}
		t.syncDir(filepath.Dir(c.Path))
		t.reached("applied %s", c.Path)
	}
	return nil
}

func (t *transaction) applyChange(c Change) error {
	now, err := t.fingerprint(c.Path)
	switch {
	case err != nil:
		return err
	case now == c.New:
		return nil // an earlier run applied it
	case now != c.Old && !t.halfWritten(c):
		return fmt.Errorf("%s %w", c.Path, errEdited)
	case c.InPlace:
		return t.pour(beside(newPrefix, c.Path), c.Path, c.Mode)
	case c.Remove:
		return t.strip(os.Remove(t.path(c.Path)))
	}
	return t.rename(beside(newPrefix, c.Path), c.Path)
}

// revert rolls back the file changes of a step. It leaves a file that another
// program or a person has changed since, and names it in the error. It restores the
// others.
func (t *transaction) revert(step Step) error {
	var errs []error
	for _, c := range slices.Backward(t.Changes) {
		if c.Step != step {
			continue
		}
		err := t.revertChange(c)
		if errors.Is(err, errEdited) && t.leaveEdited {
			t.left, err = append(t.left, c.Path), nil
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		t.syncDir(filepath.Dir(c.Path))
		t.reached("reverted %s", c.Path)
	}
	return errors.Join(errs...)
}

func (t *transaction) revertChange(c Change) error {
	now, err := t.fingerprint(c.Path)
	switch {
	case err != nil:
		return err
	case now == c.Old:
		return t.clear(c.Path)
	case now != c.New && c.Step == StepAPIServer:
		return t.revertEditedManifest(c, now)
	case now != c.New && !t.halfWritten(c):
		return fmt.Errorf("%s %w and is left as it is", c.Path, errEdited)
	case c.InPlace:
		return t.pour(beside(oldPrefix, c.Path), c.Path, modeOf(c.Old))
	case c.Old == absent:
		return t.strip(os.Remove(t.path(c.Path)))
	}
	return t.rename(beside(oldPrefix, c.Path), c.Path)
}

// pour writes the content of one file into another, which stays the same inode. If a
// kill leaves the file half written, the next run writes it again. pour removes the
// permissions of group and others before it writes, so a user whom only the old mode
// lets read the file cannot read the new content.
func (t *transaction) pour(from, to string, mode fs.FileMode) error {
	data, err := t.read(from)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(t.path(to), os.O_WRONLY, 0)
	if err != nil {
		return t.strip(err)
	}
	if err = file.Chmod(onlyOwner(mode)); err == nil {
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
	return t.strip(errors.Join(err, file.Close()))
}
