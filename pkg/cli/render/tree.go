// SPDX-License-Identifier: Apache-2.0

package render

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
)

var (
	// errForeign is returned when a directory holds files that fairlead did not write.
	errForeign = errors.New("holds files that fairlead did not write")
	// errBusy is returned while another render writes to the directory.
	errBusy = errors.New("another render is writing there: retry when it has ended")
)

const (
	// stagingPrefix begins the names of directories for work in progress, which a
	// later render removes.
	stagingPrefix = ".fairlead-staging-"
	// replacedPrefix begins the names of directories with replaced files until the
	// render has succeeded. No later render removes them: they may hold the only copy.
	replacedPrefix = ".fairlead-replaced-"

	newDir     = "new"
	unionIndex = "union-index"
)

// writeTree makes dir hold exactly these files, besides its index. It writes all
// of them aside first, where a full disk is noticed, and then moves them into
// place; if that fails it moves the earlier files back.
func writeTree(dir string, files []bundle.File) error {
	existed := exists(dir)
	if err := replaceTree(dir, files, fileOps{rename: os.Rename, link: os.Link}); err != nil {
		if !existed && !errors.Is(err, errBusy) {
			_ = os.Remove(dir) // fails if something is in it, which then must stay
		}
		return fmt.Errorf("write %s: %w", dir, err)
	}
	return nil
}

func replaceTree(dir string, files []bundle.File, ops fileOps) error {
	dir, err := makeDir(dir)
	if err != nil {
		return err
	}
	unlock, err := lock(dir)
	if err != nil {
		return err
	}
	defer unlock()
	old, err := readIndex(dir)
	if err != nil {
		return err
	}
	if err := refuseForeign(dir, old, files); err != nil {
		return err
	}
	staging, err := stage(dir, old, files)
	if err != nil {
		_ = os.RemoveAll(staging)
		return fmt.Errorf("%w (nothing was changed)", err)
	}
	m := &mover{fileOps: ops, dir: dir, backup: filepath.Join(dir, replacedPrefix+strings.TrimPrefix(filepath.Base(staging), stagingPrefix))}
	err = m.commitOrUndo(staging, old, files)
	_ = os.RemoveAll(staging)
	return err
}

// makeDir makes the directory if it is missing, and returns where it really is:
// what walks a tree does not follow a link at its root.
func makeDir(dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		if target, e := os.Readlink(dir); e == nil {
			return "", fmt.Errorf("it is a link to %s, which is not a directory: create that directory or remove the link", target)
		}
		return "", err
	}
	return filepath.EvalSymlinks(dir)
}

// lock keeps other renders from writing to dir, whose staging looks like the
// leftovers of a killed one. The lock ends with the process at the latest.
func lock(dir string) (unlock func(), err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	// Any other error says that the file system has no locks; that is no reason to
	// refuse it.
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		_ = f.Close()
		return nil, errBusy
	}
	return func() { _ = f.Close() }, nil
}

func exists(name string) bool {
	_, err := os.Lstat(name)
	return err == nil
}

// refuseForeign fails if dir holds a file that is neither in the index nor equal
// to one to be written.
func refuseForeign(dir string, old []string, files []bundle.File) error {
	ours := map[string]bool{indexFile: true}
	for _, p := range old {
		ours[p] = true
	}
	wanted := map[string]bundle.File{}
	for _, f := range files {
		wanted[f.Path] = f
	}
	return filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if strings.HasPrefix(d.Name(), stagingPrefix) || strings.HasPrefix(d.Name(), replacedPrefix) {
				return fs.SkipDir
			}
			return nil
		}
		rel, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}
		if rel = filepath.ToSlash(rel); ours[rel] {
			return nil
		}
		if f, ok := wanted[rel]; ok && d.Type().IsRegular() {
			if data, err := os.ReadFile(name); err == nil && slices.Equal(data, f.Data) {
				return nil
			}
		}
		return fmt.Errorf("the directory %w, such as %s: move them away or set another --output-dir", errForeign, rel)
	})
}

// stage writes all files and the indexes below a new directory inside dir, so that
// moving them is a rename. The directory may exist even if that fails.
func stage(dir string, old []string, files []bundle.File) (string, error) {
	removeLeftovers(dir)
	staging, err := os.MkdirTemp(dir, stagingPrefix)
	if err != nil {
		return "", err
	}
	staged := []bundle.File{
		{Path: unionIndex, Mode: 0o644, Data: index(append(slices.Clone(old), paths(files)...))},
		{Path: filepath.Join(newDir, indexFile), Mode: 0o644, Data: index(paths(files))},
	}
	for _, f := range files {
		f.Path = filepath.Join(newDir, f.Path)
		staged = append(staged, f)
	}
	for _, f := range staged {
		if err := writeFile(filepath.Join(staging, f.Path), f); err != nil {
			return staging, err
		}
	}
	return staging, nil
}

// removeLeftovers removes what a killed run left; failing to is not a reason to
// stop.
func removeLeftovers(dir string) {
	left, err := filepath.Glob(filepath.Join(dir, stagingPrefix+"*"))
	if err != nil {
		return
	}
	for _, name := range left {
		_ = os.RemoveAll(name)
	}
}

// writeFile writes a new file with its mode from the first moment: a secret must
// not be readable even briefly.
func writeFile(name string, f bundle.File) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fs.FileMode(f.Mode))
	if err != nil {
		return err
	}
	if _, err := file.Write(f.Data); err != nil {
		return errors.Join(err, file.Close())
	}
	// A full disk may show as late as this.
	if err := file.Sync(); err != nil {
		return errors.Join(err, file.Close())
	}
	return file.Close()
}
