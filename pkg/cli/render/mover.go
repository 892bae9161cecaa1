package render

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
)

// mover moves staged files into place and can undo it.
type mover struct {
	// dir is the output directory, and backup keeps what was replaced.
	dir, backup string
	undo        []func() error
}

// commit moves every file and the index from staged into place, in order, and
// the stale files of an earlier render away.
func (m *mover) commit(staged string, old []string, files []bundle.File) error {
	var paths []string
	for _, f := range files {
		paths = append(paths, f.Path)
	}
	for _, p := range append(slices.Clone(paths), indexFile) {
		if err := m.place(filepath.Join(staged, p), p); err != nil {
			return err
		}
	}
	var stale []string
	for _, p := range old {
		if !slices.Contains(paths, p) {
			stale = append(stale, p)
		}
	}
	for _, p := range stale {
		if err := m.setAside(p); err != nil {
			return err
		}
	}
	// Only now: an undo may need the directories.
	for _, p := range stale {
		m.removeEmptyParents(p)
	}
	return nil
}

// setAside moves an existing file to the backup.
func (m *mover) setAside(p string) error {
	return m.keep(p, os.Rename)
}

// keep puts an existing file into the backup, by moving or linking it.
func (m *mover) keep(p string, how func(from, to string) error) error {
	from, to := filepath.Join(m.dir, p), filepath.Join(m.backup, p)
	if _, err := os.Lstat(from); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	if err := how(from, to); err != nil {
		return err
	}
	m.undo = append(m.undo, func() error { return os.Rename(to, from) })
	return nil
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
	if err := m.keep(p, os.Link); err != nil {
		return err
	}
	if err := os.Rename(staged, to); err != nil {
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
