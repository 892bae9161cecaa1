// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io/fs"

	"github.com/fairlead-dev/fairlead/pkg/imagetar"
)

const (
	dirMode     = fs.ModeDir
	stickyMode  = fs.ModeSticky
	symlinkMode = fs.ModeSymlink
)

// applets are the commands that a pod of the checks and tests may be told to run: kubectl exec, kubectl cp, probes.
var applets = []string{
	"sh", "ash", "cat", "head", "tail", "tar", "ls", "sleep", "wget", "nc", "echo", "printf", "true", "false", "date", "seq", "wc", "md5sum",
	"sha256sum", "dd", "cp", "mv", "rm", "mkdir", "chmod", "touch", "ps", "kill", "id", "hostname", "env", "test", "nslookup", "ping", "ip", "yes", "od", "tee", "grep", "sed",
}

// shell is busybox with its names.
func shell(busybox []byte) []imagetar.File {
	files := []imagetar.File{{Name: "bin/busybox", Mode: 0o755, Data: busybox}}
	for _, name := range applets {
		files = append(files, imagetar.File{Name: "bin/" + name, Mode: symlinkMode, Link: "busybox"})
	}
	return files
}
