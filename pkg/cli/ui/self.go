// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Self is what to type to run this program again from here: its name if it is
// in PATH, else the shortest path to it.
func Self() string {
	name := filepath.Base(os.Args[0])
	self, err := os.Executable()
	if err != nil {
		return name
	}
	if found, err := exec.LookPath(name); err == nil {
		if target, err := filepath.EvalSymlinks(found); err == nil && target == self {
			return strings.Replace(name, "kubectl-", "kubectl ", 1)
		}
	}
	dir, err := os.Getwd()
	if err != nil {
		return self
	}
	if rel, err := filepath.Rel(dir, self); err == nil && !strings.HasPrefix(rel, "../..") {
		return rel
	}
	return self
}
