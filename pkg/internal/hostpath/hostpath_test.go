// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"os"
	"path/filepath"
	"testing"
)

// TestLinksStayInside: absolute and relative links of the node end below the root, whatever this machine has at the same names.
func TestLinksStayInside(t *testing.T) {
	root, outside := t.TempDir(), t.TempDir()
	file := filepath.Join(outside, "kubernetes", "a.conf") // on this machine
	inside := filepath.Join(root, file)                    // the same name on the node
	for name, content := range map[string]string{file: "outside", inside: "inside"} {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"etc": outside, "up": "../../../../../.." + outside, "a.conf": file} {
		if err := os.Symlink(to, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range []string{"/etc/kubernetes/a.conf", "/up/kubernetes/a.conf", "/a.conf", file} {
		if data, err := os.ReadFile(Follow(root, p)); err != nil || string(data) != "inside" {
			t.Errorf("Follow(%s) leads to %q, %v; want the node's file", p, data, err)
		}
	}
	wd := filepath.Dir(filepath.Dir(inside))
	t.Chdir(wd)
	relative, err := filepath.Rel(wd, root) // begins with ..
	if err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(Follow(relative, "/a.conf")); err != nil || string(data) != "inside" {
		t.Errorf("from root %s: %q, %v; want the node's file", relative, data, err)
	}
	if got := Path(root, "/a/.."); got != root {
		t.Errorf("Path of /a/.. is %s, want the root", got)
	}
	for link, to := range map[string]string{"x": "/y", "y": "/x"} {
		if err := os.Symlink(to, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(Follow(root, "/x/file")); err == nil || os.IsNotExist(err) {
		t.Errorf("links in a circle: %v, want an error that is not that there is no file", err)
	}
	if got, want := Path(root, "/a.conf"), filepath.Join(root, "a.conf"); got != want {
		t.Errorf("Path of a link is %s, want the link %s", got, want)
	}
	if got := Path(root, "/etc/kubernetes/new/b.conf"); got != filepath.Join(root, outside, "kubernetes/new/b.conf") {
		t.Errorf("Path of a file to create is %s, want it below the root", got)
	}
	for _, own := range []string{"", "/"} {
		if got := Follow(own, "/etc/x") + Path(own, "/etc/x"); got != "/etc/x/etc/x" {
			t.Errorf("root %q changes a path of this machine: %s", own, got)
		}
	}
}
