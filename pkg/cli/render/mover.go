// SPDX-License-Identifier: Apache-2.0

package render

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
)

// fileOps are what changes the output directory; tests let them fail.
type fileOps struct {
	rename, link func(from, to string) error
}

// mover moves staged files into place and can undo it.
type mover struct {
	fileOps
	// dir is the output directory, and backup keeps what was replaced.
	dir, backup string
	undo        []func() error
}

// commitOrUndo commits, and puts everything back if that fails. What it cannot
// put back stays in the backup, which the error names.
func (m *mover) commitOrUndo(staging string, old []string, files []bundle.File) error {
	err := m.commit(staging, old, files)
	if err != nil {
		if undo := m.rollback(); undo != nil {
			return fmt.Errorf("%w; restoring the earlier files failed, too: %w; the missing files are in %s: move them back", err, undo, m.backup)
		}
		err = fmt.Errorf("%w (the earlier files were restored)", err)
	}
	_ = os.RemoveAll(m.backup)
	return err
}

// commit moves every file from staging into place, in order, and the stale files
// of an earlier render away. Until it has ended, the index names the files of both
// renders: after a kill the next one must know all of them as its own.
func (m *mover) commit(staging string, old []string, files []bundle.File) error {
	if err := m.place(filepath.Join(staging, unionIndex), indexFile); err != nil {
		return err
	}
	for _, f := range files {
		if err := m.place(filepath.Join(staging, newDir, f.Path), f.Path); err != nil {
			return err
		}
	}
	var stale []string
	for _, p := range old {
		if !slices.Contains(paths(files), p) {
			stale = append(stale, p)
		}
	}
	for _, p := range stale {
		if err := m.keep(p, m.rename); err != nil {
			return err
		}
	}
	// The index from before this render is in the backup already; this replaces the
	// index of both renders.
	if err := m.rename(filepath.Join(staging, newDir, indexFile), filepath.Join(m.dir, indexFile)); err != nil {
		return err
	}
	// Only now: an undo may need the directories.
	for _, p := range stale {
		m.removeEmptyParents(p)
	}
	return nil
}

// keep puts an existing file into the backup.
func (m *mover) keep(p string, how func(from, to string) error) error {
	from, to := filepath.Join(m.dir, p), filepath.Join(m.backup, p)
	if _, err := os.Lstat(from); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	if err := how(from, to); err != nil {
		return err
	}
	m.undo = append(m.undo, func() error { return m.rename(to, from) })
	return nil
}

// linkOrCopy makes a second name for a file, or a copy where the file system
// knows no second names.
func (m *mover) linkOrCopy(from, to string) error {
	if err := m.link(from, to); err == nil {
		return nil
	}
	info, err := os.Lstat(from)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file: move it away", from)
	}
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, info.Mode().Perm())
	if err != nil {
		return err
	}
	_, err = io.Copy(target, source)
	return errors.Join(err, target.Close())
}

// place moves a staged file to where it belongs. What is there is linked to the
// backup and then replaced in one step, so there is no moment without the file.
func (m *mover) place(staged, p string) error {
	to := filepath.Join(m.dir, p)
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	// Undone in reverse order: first this, then the earlier file comes back.
	isNew := !exists(to)
	if err := m.keep(p, m.linkOrCopy); err != nil {
		return err
	}
	if err := m.rename(staged, to); err != nil {
		return err
	}
	if isNew {
		m.undo = append(m.undo, func() error {
			defer m.removeEmptyParents(p)
			return os.Remove(to)
		})
	}
	return nil
}

// removeEmptyParents removes directories that a moved file left empty. Remove
// fails on one that is not, which ends the loop.
func (m *mover) removeEmptyParents(p string) {
	for dir := filepath.Dir(p); dir != "."; dir = filepath.Dir(dir) {
		if os.Remove(filepath.Join(m.dir, dir)) != nil {
			return
		}
	}
}

// rollback puts everything back, as far as it can.
func (m *mover) rollback() error {
	var errs []error
	for _, undo := range slices.Backward(m.undo) {
		errs = append(errs, undo())
	}
	return errors.Join(errs...)
}
