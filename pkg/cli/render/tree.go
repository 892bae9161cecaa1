package render

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
)

// errForeign is returned when a directory holds files of somebody else.
var errForeign = errors.New("holds files that fairlead did not write")

const (
	// indexFile lists the files of the last render. kubectl takes no notice of it.
	indexFile = ".fairlead-render"
	// stagingPrefix begins the names of directories for work in progress.
	stagingPrefix = ".fairlead-staging-"

	indexHeader = "# Files written by \"fairlead render\"; it replaces and removes these and no others.\n"
)

// writeTree makes dir hold exactly these files, besides its index. It writes all
// of them aside first, where a full disk is noticed, and then moves them into
// place; if that fails it moves the earlier files back.
func writeTree(dir string, files []bundle.File) error {
	existed := exists(dir)
	if err := replaceTree(dir, files); err != nil {
		if !existed {
			_ = os.Remove(dir) // fails if something is in it, which then must stay
		}
		return fmt.Errorf("write %s: %w", dir, err)
	}
	return nil
}

func replaceTree(dir string, files []bundle.File) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	old, err := readIndex(dir)
	if err != nil {
		return err
	}
	if err := refuseForeign(dir, old, files); err != nil {
		return err
	}
	staging, err := stage(dir, files)
	if staging != "" {
		defer os.RemoveAll(staging)
	}
	if err != nil {
		return fmt.Errorf("%w (nothing was changed)", err)
	}
	m := &mover{dir: dir, backup: filepath.Join(staging, "old")}
	if err := m.commit(filepath.Join(staging, "new"), old, files); err != nil {
		if undo := m.rollback(); undo != nil {
			return fmt.Errorf("%w; putting the earlier files back failed too: %w", err, undo)
		}
		return fmt.Errorf("%w (the earlier files were put back)", err)
	}
	return nil
}

func exists(name string) bool {
	_, err := os.Lstat(name)
	return err == nil
}

// readIndex returns the paths that the last render wrote; none if there was none.
func readIndex(dir string) ([]string, error) {
	data, err := os.ReadFile(filepath.Join(dir, indexFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, line := range strings.Split(string(data), "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		// A path that leaves the directory is not ours, whoever wrote it there.
		if !filepath.IsLocal(line) {
			return nil, fmt.Errorf("%s names %q, which is outside: remove that line", indexFile, line)
		}
		paths = append(paths, line)
	}
	return paths, nil
}

func index(files []bundle.File) []byte {
	var s strings.Builder
	s.WriteString(indexHeader)
	for _, f := range files {
		s.WriteString(f.Path + "\n")
	}
	return []byte(s.String())
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
			if strings.HasPrefix(d.Name(), stagingPrefix) {
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
		return fmt.Errorf("the directory %w, such as %s: move them away or give another --output-dir", errForeign, rel)
	})
}

// stage writes all files and the index below a new directory inside dir, so that
// moving them is a rename.
func stage(dir string, files []bundle.File) (string, error) {
	removeLeftovers(dir)
	staging, err := os.MkdirTemp(dir, stagingPrefix)
	if err != nil {
		return "", err
	}
	for _, f := range append(slices.Clone(files), bundle.File{Path: indexFile, Mode: 0o644, Data: index(files)}) {
		if err := writeFile(filepath.Join(staging, "new", f.Path), f); err != nil {
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
