// SPDX-License-Identifier: Apache-2.0

package render

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
)

func files(pairs ...string) []bundle.File {
	var out []bundle.File
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, bundle.File{Path: pairs[i], Mode: 0o644, Data: []byte(pairs[i+1])})
	}
	return out
}

// contents reads all files below dir but the index, and lists empty directories.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, name)
		if d.IsDir() {
			if entries, _ := os.ReadDir(name); len(entries) == 0 {
				out[rel+"/"] = ""
			}
			return nil
		}
		data, err := os.ReadFile(name)
		if rel != indexFile {
			out[rel] = string(data)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func mustWrite(t *testing.T, dir string, f []bundle.File) {
	t.Helper()
	if err := writeTree(dir, f); err != nil {
		t.Fatal(err)
	}
}

func TestWriteTreeReplacesAndRemovesItsOwn(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "out")
	mustWrite(t, dir, files("a", "1", "sub/deep/b", "1", "sub/c", "1"))
	mustWrite(t, dir, files("a", "2", "sub/c", "1", "d", "2"))
	want := map[string]string{"a": "2", "sub/c": "1", "d": "2"}
	if diff := cmp.Diff(want, contents(t, dir)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	mustWrite(t, dir, files("a", "2"))
	if diff := cmp.Diff(map[string]string{"a": "2"}, contents(t, dir)); diff != "" {
		t.Errorf("stale files were left (-want +got):\n%s", diff)
	}
}

func TestWriteTreeKeepsForeignFiles(t *testing.T) {
	for name, foreign := range map[string]string{
		"another file":                 "notes.txt",
		"a file it would overwrite":    "a",
		"below a directory it manages": "sub/notes.txt",
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, foreign)), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, foreign), []byte("precious"), 0o644); err != nil {
				t.Fatal(err)
			}
			err := writeTree(dir, files("a", "1", "sub/b", "1"))
			if !errors.Is(err, errForeign) || !strings.Contains(err.Error(), foreign) {
				t.Errorf("error %v, want errForeign that names %s", err, foreign)
			}
			if diff := cmp.Diff(map[string]string{foreign: "precious"}, contents(t, dir)); diff != "" {
				t.Errorf("directory changed (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWriteTreeAdoptsEqualFiles(t *testing.T) {
	dir := t.TempDir()
	mustWrite(t, dir, files("a", "1"))
	if err := os.Remove(filepath.Join(dir, indexFile)); err != nil {
		t.Fatal(err)
	}
	mustWrite(t, dir, files("a", "1", "b", "1"))
}

// TestWriteTreeRollsBack makes a move fail half-way: a directory with something
// in it stands where the last file should go.
func TestWriteTreeRollsBack(t *testing.T) {
	dir := t.TempDir()
	mustWrite(t, dir, files("a", "1", "stale", "1", "z/inner", "1"))
	before := contents(t, dir)
	err := writeTree(dir, files("a", "2", "new/b", "2", "z", "2"))
	if err == nil || !strings.Contains(err.Error(), "the earlier files were restored") {
		t.Fatalf("error %v", err)
	}
	if diff := cmp.Diff(before, contents(t, dir)); diff != "" {
		t.Errorf("earlier state changed (-want +got):\n%s", diff)
	}
	mustWrite(t, dir, files("a", "3"))
}

func TestWriteTreeReadOnly(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may write to a read-only directory")
	}
	dir := t.TempDir()
	mustWrite(t, dir, files("a", "1"))
	if err := os.Chmod(dir, 0o555); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(dir, 0o755) })
	if err := writeTree(dir, files("a", "2")); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("error %v, want permission denied", err)
	}
	if diff := cmp.Diff(map[string]string{"a": "1"}, contents(t, dir)); diff != "" {
		t.Errorf("directory changed:\n%s", diff)
	}
}

// TestWriteTreeFull lowers the largest file this process may write, which fails
// a write half-way as a full disk does. The limit is above what the test's own
// files, such as the test runner's log, grow to.
func TestWriteTreeFull(t *testing.T) {
	dir := t.TempDir()
	mustWrite(t, dir, files("a", "1"))
	before := contents(t, dir)
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Skipf("no file size limit here: %v", err)
	}
	low := limit
	low.Cur = 4 << 20
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &low); err != nil {
		t.Skipf("cannot set a file size limit: %v", err)
	}
	err := writeTree(dir, files("a", "2", "big", strings.Repeat("x", 5<<20)))
	if e := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); e != nil {
		t.Fatal(e)
	}
	if !errors.Is(err, syscall.EFBIG) || !strings.Contains(err.Error(), "nothing was changed") {
		t.Errorf("error %v, want that nothing was changed", err)
	}
	if diff := cmp.Diff(before, contents(t, dir)); diff != "" {
		t.Errorf("directory changed (-want +got):\n%s", diff)
	}
}

// TestIndexCannotPointOutside: a manipulated index must not make render remove
// files elsewhere.
func TestIndexCannotPointOutside(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "out")
	victim := filepath.Join(parent, "victim")
	if err := os.WriteFile(victim, []byte("precious"), 0o644); err != nil {
		t.Fatal(err)
	}
	mustWrite(t, dir, files("a", "1"))
	if err := os.WriteFile(filepath.Join(dir, indexFile), []byte("a\n../victim\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := writeTree(dir, files("a", "2")); err == nil {
		t.Error("an index that points outside was accepted")
	}
	if _, err := os.Stat(victim); err != nil {
		t.Error(err)
	}
}
