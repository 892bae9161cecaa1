// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// commit makes the state durable and removes what only a rollback needed.
func (t *transaction) commit() error {
	if err := t.save(phaseDone); err != nil {
		return err
	}
	return t.finish()
}

// finish is the part of commit that a later run repeats after a kill.
func (t *transaction) finish() error {
	if t.State != nil {
		if err := writeJSON(t.host, stateFile, t.State); err != nil {
			return err
		}
		t.removeOldBackups()
	} else if err := t.removeState(); err != nil {
		return err
	}
	t.reached("state")
	if err := t.removeStaged(); err != nil {
		return err
	}
	t.removeDirs(t.RemoveDirs)
	return t.removeJournal()
}

// removeOldBackups removes backups that no file of the state needs any more.
func (t *transaction) removeOldBackups() {
	entries, _ := os.ReadDir(t.path(backupDir))
	for _, e := range entries {
		name := backupDir + "/" + e.Name()
		if !slices.ContainsFunc(t.State.Files, func(f InstalledFile) bool { return f.Backup == name }) {
			_ = os.Remove(t.path(name))
		}
	}
}

func (t *transaction) removeState() error {
	if err := os.Remove(t.path(stateFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return t.strip(err)
	}
	return t.strip(os.RemoveAll(t.path(backupDir)))
}

// discard finishes a run that was rolled back or never started.
func (t *transaction) discard() error {
	for _, c := range t.Changes {
		if c.Backup != "" && !t.needed(c.Backup) {
			_ = os.Remove(t.path(c.Backup))
		}
	}
	if err := t.removeStaged(); err != nil {
		return err
	}
	made := make([]string, 0, len(t.Dirs))
	for _, d := range slices.Backward(t.Dirs) {
		made = append(made, d.Path)
	}
	t.removeDirs(made)
	return t.removeJournal()
}

// needed reports whether an earlier installation uses the same backup.
func (t *transaction) needed(backup string) bool {
	before := &State{}
	found, err := readJSON(t.host, stateFile, before)
	return err != nil || found && slices.ContainsFunc(before.Files, func(f InstalledFile) bool { return f.Backup == backup })
}

// removeDirs removes directories that are empty apart from a stale socket,
// unless kube-apiserver mounts them.
func (t *transaction) removeDirs(dirs []string) {
	for _, dir := range dirs {
		entries, err := os.ReadDir(t.path(dir))
		if err != nil || t.mounted(dir) {
			continue
		}
		for _, e := range entries {
			if e.Type() == fs.ModeSocket {
				_ = os.Remove(filepath.Join(t.path(dir), e.Name()))
			}
		}
		_ = os.Remove(t.path(dir))
		t.reached("removed %s", dir)
	}
}

// removeStaged removes the staged copies of files.
func (t *transaction) removeStaged() error {
	for _, c := range t.Changes {
		for _, prefix := range []string{newPrefix, oldPrefix} {
			if err := os.Remove(t.path(beside(prefix, c.Path))); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return t.strip(err)
			}
		}
		t.syncDir(filepath.Dir(c.Path))
		t.reached("cleaned %s", c.Path)
	}
	return nil
}

// removeJournal is the last effect of a run.
func (t *transaction) removeJournal() error {
	if err := os.Remove(t.path(journalFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return t.strip(err)
	}
	t.syncDir(StateDir)
	t.reached("end")
	return nil
}
