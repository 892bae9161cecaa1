// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Two installations of the same packages, on different days and machines, are the same afterwards, and a license stays.
func TestSlim(t *testing.T) {
	install := func(day, machine string) map[string]string {
		root := t.TempDir()
		for name, text := range map[string]string{
			"etc/shadow": "root:*:" + day + ":0:99999:7:::\nbin:*:" + day + ":0:99999:7:::\n", "etc/shadow-": day, "etc/passwd": "root:x:0:0::/root:/bin/bash\n",
			"etc/passwd-": day, "etc/machine-id": machine, "etc/hostname": machine, "etc/resolv.conf": machine,
			"var/log/dpkg.log": day, "var/log/apt/history.log": day, "var/cache/ldconfig/aux-cache": machine, "var/lib/dpkg/status-old": day,
			"var/lib/dpkg/status": "Package: bash\n", "usr/share/doc/bash/changelog.gz": day, "usr/share/doc/bash/copyright": "GPL\n", "usr/bin/bash": "\x7fELF",
		} {
			path := filepath.Join(root, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := slim(root); err != nil {
			t.Fatal(err)
		}
		left := map[string]string{}
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			data, err := os.ReadFile(path)
			left[strings.TrimPrefix(path, root+"/")] = string(data)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return left
	}
	one, other := install("20000", "a"), install("20400", "b")
	if !maps.Equal(one, other) {
		t.Errorf("they differ:\n%q\n%q", one, other)
	}
	for _, stays := range []string{"usr/bin/bash", "usr/share/doc/bash/copyright", "var/lib/dpkg/status", "etc/passwd", "etc/shadow"} {
		if one[stays] == "" {
			t.Errorf("%s is gone", stays)
		}
	}
	if err := slim(t.TempDir()); err == nil {
		t.Error("a directory without a system is taken for one")
	}
}
