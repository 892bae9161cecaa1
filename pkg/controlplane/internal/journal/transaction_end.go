// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/nodefs"
)

// commit makes the state durable and removes what only a rollback needed.
func (t *Transaction) commit() error {
	if err := t.save(PhaseDone); err != nil {
		return err
	}
	return t.Finish()
}

// Finish is the part of commit that a later run repeats after a kill.
func (t *Transaction) Finish() error {
	if t.State != nil {
		if err := writeJSON(t.Host, StateFile, t.State); err != nil {
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
func (t *Transaction) removeOldBackups() {
	entries, _ := os.ReadDir(t.Path(BackupDir))
	for _, e := range entries {
		name := BackupDir + "/" + e.Name()
		if !slices.ContainsFunc(t.State.Files, func(f InstalledFile) bool { return f.Backup == name }) {
			_ = os.Remove(t.Path(name))
		}
	}
}

func (t *Transaction) removeState() error {
	if err := os.Remove(t.Path(StateFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return t.Strip(err)
	}
	return t.Strip(os.RemoveAll(t.Path(BackupDir)))
}

// Discard finishes a run that was rolled back or never started.
func (t *Transaction) Discard() error {
	for _, c := range t.Changes {
		if c.Backup != "" && !t.needed(c.Backup) {
			_ = os.Remove(t.Path(c.Backup))
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
func (t *Transaction) needed(backup string) bool {
	before := &State{}
	found, err := ReadJSON(t.Host, StateFile, before)
	return err != nil || found && slices.ContainsFunc(before.Files, func(f InstalledFile) bool { return f.Backup == backup })
}

// removeDirs removes directories that are empty apart from a stale socket,
// unless kube-apiserver mounts them.
func (t *Transaction) removeDirs(dirs []string) {
	for _, dir := range dirs {
		entries, err := os.ReadDir(t.Path(dir))
		if err != nil || t.mounted(dir) {
			continue
		}
		for _, e := range entries {
			if e.Type() == fs.ModeSocket {
				_ = os.Remove(filepath.Join(t.Path(dir), e.Name()))
			}
		}
		_ = os.Remove(t.Path(dir))
		t.reached("removed %s", dir)
	}
}

// removeStaged removes the staged copies of files.
func (t *Transaction) removeStaged() error {
	for _, c := range t.Changes {
		for _, prefix := range []string{nodefs.NewPrefix, nodefs.OldPrefix} {
			if err := os.Remove(t.Path(nodefs.Beside(prefix, c.Path))); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return t.Strip(err)
			}
		}
		t.SyncDir(filepath.Dir(c.Path))
		t.reached("cleaned %s", c.Path)
	}
	return nil
}

// removeJournal is the last effect of a run.
func (t *Transaction) removeJournal() error {
	if err := os.Remove(t.Path(File)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return t.Strip(err)
	}
	t.SyncDir(Dir)
	t.reached("end")
	return nil
}

// Forget drops the journal of a run in another cluster: it makes no sense to
// complete or roll back that run in this one.
func (t *Transaction) Forget(notef func(string, ...any)) error {
	notef("an earlier %s of %s did not end, and was in another cluster, to which this node belonged before: it is forgotten", t.Operation, t.Started.Format(time.DateTime))
	return t.Discard()
}
