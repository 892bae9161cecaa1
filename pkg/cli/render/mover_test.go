// SPDX-License-Identifier: Apache-2.0

package render

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var errBroken = errors.New("broken")

// after returns a rename that works n times and then calls another function.
func after(n int, then func() error) func(from, to string) error {
	return func(from, to string) error {
		if n--; n < 0 {
			return then()
		}
		return os.Rename(from, to)
	}
}

// TestUndoFails: the only copy of a replaced file is kept, its place is named, and
// no later render removes it.
func TestUndoFails(t *testing.T) {
	dir := t.TempDir()
	mustWrite(t, dir, files("a", "precious", "z", "1"))
	// The renames of the index and of a succeed; then the disk fails.
	broken := fileOps{link: os.Link, rename: after(2, func() error { return errBroken })}
	err := replaceTree(dir, files("a", "2", "z", "2"), broken)
	if !errors.Is(err, errBroken) || !strings.Contains(err.Error(), "restoring the earlier files failed, too") {
		t.Fatalf("error %v", err)
	}
	_, rest, _ := strings.Cut(err.Error(), "are in ")
	kept, _, _ := strings.Cut(rest, ": move them back")
	check := func(when string) {
		t.Helper()
		if data, err := os.ReadFile(filepath.Join(kept, "a")); string(data) != "precious" {
			t.Errorf("%s: %s holds %q, error %v", when, kept, data, err)
		}
	}
	check("after the failure")
	mustWrite(t, dir, files("a", "3"))
	check("after the next render")
	if left, _ := filepath.Glob(filepath.Join(dir, stagingPrefix+"*")); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}

// TestKilled ends a render at every step: the next one, of another configuration,
// knows all files as its own.
func TestKilled(t *testing.T) {
	type killed struct{}
	ended := false
	for n := 0; !ended; n++ {
		dir := t.TempDir()
		mustWrite(t, dir, files("a", "1", "old/b", "1"))
		func() {
			defer func() {
				if r := recover(); r != nil && r != (killed{}) {
					panic(r)
				}
			}()
			ops := fileOps{link: os.Link, rename: after(n, func() error { panic(killed{}) })}
			if err := replaceTree(dir, files("a", "2", "new/c", "2", "d", "2"), ops); err != nil {
				t.Fatal(err)
			}
			ended = true
		}()
		if err := writeTree(dir, files("a", "3", "e", "3")); err != nil {
			t.Errorf("killed at move %d: %v", n, err)
			continue
		}
		got := contents(t, dir)
		for name := range got {
			if strings.HasPrefix(name, replacedPrefix) {
				delete(got, name) // kept on purpose
			}
		}
		if diff := cmp.Diff(map[string]string{"a": "3", "e": "3"}, got); diff != "" {
			t.Errorf("killed at move %d (-want +got):\n%s", n, diff)
		}
		if n > 20 {
			t.Fatal("the render never ended")
		}
	}
}

// TestNoHardLinks: file systems such as FAT have none.
func TestNoHardLinks(t *testing.T) {
	noLinks := func(_, _ string) error { return syscall.EPERM }
	dir := t.TempDir()
	secret := files("a", "1", "b", "1")
	secret[0].Mode = 0o600
	mustWrite(t, dir, secret)
	if err := replaceTree(dir, files("a", "2", "b", "1"), fileOps{rename: os.Rename, link: noLinks}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"a": "2", "b": "1"}, contents(t, dir)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	mustWrite(t, dir, secret)
	m := &mover{fileOps: fileOps{rename: os.Rename, link: noLinks}, dir: dir, backup: filepath.Join(dir, replacedPrefix)}
	if err := m.commitOrUndo(t.TempDir(), nil, files("a", "2")); err == nil || !strings.Contains(err.Error(), "were restored") {
		t.Errorf("error %v", err)
	}
	if info, err := os.Stat(filepath.Join(dir, "a")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("a came back as %v, error %v", info, err)
	}
}

// TestSymbolicLink: the output directory may be a link to one.
func TestSymbolicLink(t *testing.T) {
	parent := t.TempDir()
	target, link := filepath.Join(parent, "real"), filepath.Join(parent, "link")
	if err := os.Symlink("real", link); err != nil {
		t.Fatal(err)
	}
	if err := writeTree(link, files("a", "1")); err == nil || !strings.Contains(err.Error(), "it is a link to real") {
		t.Errorf("a link to nothing: error %v", err)
	}
	if err := os.Mkdir(target, 0o755); err != nil {
		t.Fatal(err)
	}
	mustWrite(t, link, files("a", "1", "sub/b", "1"))
	mustWrite(t, link, files("a", "2"))
	if diff := cmp.Diff(map[string]string{"a": "2"}, contents(t, target)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if err := os.WriteFile(filepath.Join(target, "notes.txt"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := writeTree(link, files("a", "3")); !errors.Is(err, errForeign) || !strings.Contains(err.Error(), "notes.txt") {
		t.Errorf("error %v, want errForeign: links must not hide files", err)
	}
	if to, err := os.Readlink(link); to != "real" {
		t.Errorf("the link is gone: %v", err)
	}
}

// TestTwoRenders: a render does not wait for another one, and does not remove the
// files that the other one has staged.
func TestTwoRenders(t *testing.T) {
	dir := t.TempDir()
	mustWrite(t, dir, files("a", "1"))
	started, finish := make(chan struct{}), make(chan struct{})
	var first error
	var wg sync.WaitGroup
	wg.Go(func() {
		var once sync.Once
		first = replaceTree(dir, files("a", "2"), fileOps{link: os.Link, rename: func(from, to string) error {
			once.Do(func() { close(started); <-finish })
			return os.Rename(from, to)
		}})
	})
	<-started
	if err := writeTree(dir, files("a", "3")); !errors.Is(err, errBusy) {
		t.Errorf("error %v, want errBusy", err)
	}
	close(finish)
	wg.Wait()
	if first != nil {
		t.Errorf("the first render failed: %v", first)
	}
	if diff := cmp.Diff(map[string]string{"a": "2"}, contents(t, dir)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	mustWrite(t, dir, files("a", "3"))
}

// TestManyRenders at once into one new directory: each succeeds or says that it is
// not its turn, and what is left is one of them.
func TestManyRenders(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			v := fmt.Sprint(i)
			if err := writeTree(dir, files("a", v, "sub/b", v)); err != nil && !errors.Is(err, errBusy) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	got := contents(t, dir)
	if len(got) != 2 || got["a"] != got["sub/b"] {
		t.Errorf("mixed: %v", got)
	}
}
