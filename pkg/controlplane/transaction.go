package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// errEdited is returned when somebody else has changed a file during a run.
var errEdited = errors.New("was changed by somebody else meanwhile")

// transaction makes the changes of a journal, or unmakes them. Every method may
// be called again after a kill at any point: what is done already is recognised
// by the files' fingerprints.
type transaction struct {
	host
	*journal
	// leaveEdited: an earlier attempt to go back has named the files that somebody
	// else has changed; this one leaves them and comes to an end. They are in left.
	leaveEdited bool
	left        []string
	// after is told about every single effect; tests kill the process there.
	after func(point string)
}

func (t *transaction) reached(point string, args ...any) {
	if t.after != nil {
		t.after(fmt.Sprintf(point, args...))
	}
}

func (t *transaction) save(p phase) error {
	t.Phase = p
	if err := writeJSON(t.host, journalFile, t.journal); err != nil {
		return err
	}
	t.reached("journal %s", p)
	return nil
}

// prepare lays everything ready: all that needs room on a disk happens here. If
// it fails nothing has changed, and it cleans up.
func (t *transaction) prepare() error {
	err := t.stage()
	if err != nil {
		err = errors.Join(err, t.discard())
	}
	return err
}

func (t *transaction) stage() error {
	if err := t.save(phasePreparing); err != nil {
		return err
	}
	for _, d := range t.Dirs {
		if err := os.Mkdir(t.path(d.Path), d.Mode); err != nil && !errors.Is(err, fs.ErrExist) {
			return t.strip(err)
		}
		t.reached("directory %s", d.Path)
	}
	for _, c := range t.Changes {
		if err := t.stageChange(c); err != nil {
			return err
		}
		t.reached("staged %s", c.Path)
	}
	return t.save(phaseApplying)
}

// stageChange keeps the old file under a second name, which costs no room and
// keeps all its attributes, and writes the new one beside it.
func (t *transaction) stageChange(c Change) error {
	if c.Old != absent {
		if err := t.keepOld(c, beside(oldPrefix, c.Path)); err != nil {
			return err
		}
	}
	if c.Backup != "" {
		if err := os.MkdirAll(t.path(backupDir), 0o700); err != nil {
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

// keepOld makes the second name; a copy where the file system knows none, or
// where the file itself will be written to.
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
	return t.write(to, data, info.Mode(), t.owner(from))
}

// apply makes the file changes of a step.
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
		return nil // by an earlier run
	case now != c.Old && !t.halfWritten(c):
		return fmt.Errorf("%s %w", c.Path, errEdited)
	case c.InPlace:
		return t.pour(beside(newPrefix, c.Path), c.Path)
	case c.Remove:
		return t.strip(os.Remove(t.path(c.Path)))
	}
	return t.strip(os.Rename(t.path(beside(newPrefix, c.Path)), t.path(c.Path)))
}

// revert unmakes the file changes of a step. A file that somebody else has
// changed since is left alone and named in the error; the others go back.
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
		return nil
	case now != c.New && c.Step == StepAPIServer:
		return t.revertEditedManifest(c, now)
	case now != c.New && !t.halfWritten(c):
		return fmt.Errorf("%s %w and is left as it is", c.Path, errEdited)
	case c.InPlace:
		return t.pour(beside(oldPrefix, c.Path), c.Path)
	case c.Old == absent:
		return t.strip(os.Remove(t.path(c.Path)))
	}
	return t.strip(os.Rename(t.path(beside(oldPrefix, c.Path)), t.path(c.Path)))
}

// pour writes the content of one file into another, which stays the same file. Half
// of it after a kill is written again by the next run.
func (t *transaction) pour(from, to string) error {
	data, err := t.read(from)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(t.path(to), os.O_WRONLY, 0)
	if err != nil {
		return t.strip(err)
	}
	_, err = file.Write(data)
	if err == nil {
		err = file.Truncate(int64(len(data)))
	}
	if err == nil {
		err = file.Sync()
	}
	return t.strip(errors.Join(err, file.Close()))
}

// commit makes the state durable and removes what was only needed to go back.
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

// removeOldBackups removes copies that no file of the state needs any more.
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

// discard ends a run that has gone back, or never began.
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

// needed tells whether an earlier installation has its copy there, too.
func (t *transaction) needed(backup string) bool {
	before := &State{}
	found, err := readJSON(t.host, stateFile, before)
	return err != nil || found && slices.ContainsFunc(before.Files, func(f InstalledFile) bool { return f.Backup == backup })
}

// removeDirs removes directories that are empty but for a socket that nobody
// serves any more, and that kube-apiserver does not mount.
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

// removeStaged removes the second names of files.
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

// effects is what a step does besides its files.
type effects interface {
	// making is called before the files of a step take their places. It returns
	// whether the journal has learned something that must outlive a kill.
	making(ctx context.Context, step Step) (learned bool)
	// made is called when the files of a step are in place, and returns when they
	// have taken effect.
	made(ctx context.Context, step Step) error
	// unmaking is called once, before the first step is put back.
	unmaking()
	// unmade is called when the files of a step have been put back.
	unmade(ctx context.Context, step Step) error
}

// forward makes all steps, and what belongs to each.
func (t *transaction) forward(ctx context.Context, e effects) error {
	for _, step := range t.Steps {
		if err := ctx.Err(); err != nil {
			return err
		}
		if e.making(ctx, step) {
			if err := t.save(t.Phase); err != nil {
				return fmt.Errorf("%s: %w", step, err)
			}
		}
		if err := t.apply(step); err != nil {
			return fmt.Errorf("%s: %w", step, err)
		}
		if err := e.made(ctx, step); err != nil {
			return fmt.Errorf("%s: %w", step, err)
		}
		t.reached("step %s", step)
	}
	return t.commit()
}

// back unmakes all steps in the opposite order, as far as it can.
func (t *transaction) back(ctx context.Context, e effects) error {
	if t.Phase != phaseRollback {
		e.unmaking()
	}
	if err := t.save(phaseRollback); err != nil {
		// Going back needs no room; only another kill would now find a journal that
		// says "applying", from which it can go back as well.
		t.Phase = phaseRollback
	}
	var errs []error
	for _, step := range t.backward() {
		err := t.revert(step)
		if err != nil && (step == StepAPIServer || !errors.Is(err, errEdited)) {
			// What comes after stands on this step: kube-apiserver's manifest names
			// files that would go, or would come back and name files that are not there.
			return errors.Join(append(errs, fmt.Errorf("%s: %w", step, err))...)
		}
		if err == nil {
			err = e.unmade(ctx, step)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", step, err))
		}
		t.reached("undone %s", step)
	}
	if err := errors.Join(errs...); err != nil {
		return err // the journal stays, for another try
	}
	return t.discard()
}

// backward is the order of going back. kubeadm's configuration comes last either
// way: it takes an API server that works.
func (t *transaction) backward() []Step {
	steps := slices.DeleteFunc(slices.Clone(t.Steps), func(s Step) bool { return s == StepKubeadm })
	slices.Reverse(steps)
	return append(steps, StepKubeadm)
}
