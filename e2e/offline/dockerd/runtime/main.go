// SPDX-License-Identifier: Apache-2.0

package runtime

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Name is the base name under which a program has to call [Main]; it is also the runtime's name in dockerd.
const Name = "runc-without-sys-resource"

// usualPath is where runc is, as distributions install it.
const usualPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Main edits what the arguments point to and becomes the runc that PATH finds, with the same arguments. It returns only
// when that fails.
func Main(args []string) error {
	if err := edit(args[1:]); err != nil {
		return fmt.Errorf("%s: %w", Name, err)
	}
	if os.Getenv("PATH") == "" { // Podman calls its runtime without any to end a container
		if err := os.Setenv("PATH", usualPath); err != nil {
			return fmt.Errorf("%s: %w", Name, err)
		}
	}
	runc, err := exec.LookPath("runc")
	if err != nil {
		return fmt.Errorf("%s: the real runc: %w", Name, err)
	}
	return fmt.Errorf("%s: %s: %w", Name, runc, syscall.Exec(runc, append([]string{"runc"}, args[1:]...), os.Environ()))
}

// edit rewrites the one file that belongs to the subcommand, if it is one that starts a process.
func edit(args []string) error {
	for i, arg := range args {
		switch arg {
		case "create", "run":
			dir := flagValue(args[i+1:], "--bundle", "-b")
			return rewrite(filepath.Join(dir, "config.json"), StripBundle) // runc's default is the working directory
		case "exec":
			if file := flagValue(args[i+1:], "--process", "-p"); file != "" {
				return rewrite(file, StripProcess)
			}
			return nil
		case "checkpoint", "delete", "events", "features", "kill", "list", "pause", "ps", "restore", "resume", "spec", "start", "state", "update":
			return nil
		}
	}
	return nil
}

// flagValue finds the value in "--flag value", "--flag=value" and the short forms.
func flagValue(args []string, names ...string) string {
	for i, arg := range args {
		for _, name := range names {
			if value, ok := strings.CutPrefix(arg, name+"="); ok {
				return value
			}
			if arg == name && i+1 < len(args) {
				return args[i+1]
			}
		}
	}
	return ""
}

func rewrite(path string, change func([]byte) ([]byte, error)) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	changed, err := change(data)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	return os.WriteFile(path, changed, info.Mode().Perm())
}

// sysResourceBit is CAP_SYS_RESOURCE's number in linux/capability.h.
const sysResourceBit = 24

// Needed reports whether this process could not give CAP_SYS_RESOURCE to a container.
func Needed() (bool, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return false, err
	}
	return lacks(string(status))
}

func lacks(status string) (bool, error) {
	for line := range strings.Lines(status) {
		if hex, ok := strings.CutPrefix(line, "CapBnd:"); ok {
			set, err := strconv.ParseUint(strings.TrimSpace(hex), 16, 64)
			return set&(1<<sysResourceBit) == 0, err
		}
	}
	return false, errors.New("/proc/self/status names no bounding set (CapBnd)")
}
