// SPDX-License-Identifier: Apache-2.0

// Package hostpath maps paths of a node to paths of this process, when the node's file system is mounted at a root directory.
// Symbolic links on the node, absolute ones too, are resolved below that root: none leads out of it. Use [Follow] to read and to list, and [Path] to replace.
package hostpath

import (
	"path/filepath"

	securejoin "github.com/cyphar/filepath-securejoin"
)

// Path returns the path by which this process reaches the name p of the node, itself a symbolic link or not: for os.Lstat, and to
// create, rename and remove. With root "" or "/" it returns p.
func Path(root, p string) string {
	p = filepath.Clean("/" + p)
	if own(root) || p == "/" {
		return filepath.Join(root, p)
	}
	return filepath.Join(Follow(root, filepath.Dir(p)), filepath.Base(p))
}

// Follow returns the path by which this process reaches the file that p leads to: for os.Open and os.Stat. With root "" or "/" it
// returns p.
func Follow(root, p string) string {
	if own(root) {
		return filepath.Join(root, p)
	}
	absolute, err := filepath.Abs(root)
	if err != nil {
		return unusable
	}
	resolved, err := securejoin.SecureJoin(absolute, p)
	if err != nil { // such as links in a circle
		return unusable
	}
	return resolved
}

// unusable is a name that every system call refuses with "invalid argument": a name that cannot be resolved below the root must not
// lead to a file of this machine.
const unusable = "/\x00"

// own reports whether root is that of this process, which resolves links itself.
func own(root string) bool { return root == "" || filepath.Clean(root) == "/" }
