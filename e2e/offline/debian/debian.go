// SPDX-License-Identifier: Apache-2.0

// Package debian has what the tools of this repository need on a Debian machine: it installs packages with apt, and
// removes mounts that a killed program left behind.
package debian

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
)

// ErrInstall says that a program is missing and could not be installed.
var ErrInstall = errors.New("could not be installed")

// Install makes sure that the named programs are in PATH, and installs the packages if one is not. A name that ends in
// a question mark is optional: Install skips such packages if this release does not have them. It needs root. It calls
// log, which may be nil, before it installs packages.
func Install(ctx context.Context, programs, packages []string, log func(string)) error {
	if err := addSbin(); err != nil {
		return err
	}
	missing := lacking(programs)
	if len(missing) == 0 {
		return nil
	}
	what := strings.Join(missing, " and ")
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("%s is not installed and %w: this is not Debian, where apt would do it", what, ErrInstall)
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("%s is not installed and %w: only root can do it", what, ErrInstall)
	}
	if log != nil {
		log("Installing " + what + " from Debian's packages ...")
	}
	if err := apt(ctx, "update", "--quiet"); err != nil {
		return err
	}
	install := []string{"install", "--quiet", "--yes", "--no-install-recommends"}
	for _, name := range packages {
		name, optional := strings.CutSuffix(name, "?")
		if !optional || exec.CommandContext(ctx, "apt-cache", "show", "--no-all-versions", name).Run() == nil {
			install = append(install, name)
		}
	}
	if err := apt(ctx, install...); err != nil {
		return err
	}
	if missing := lacking(programs); len(missing) > 0 {
		return fmt.Errorf("%s %w: it is not in %v", strings.Join(missing, " and "), ErrInstall, install[4:])
	}
	return nil
}

// addSbin adds the directories that su without a dash leaves out of PATH.
func addSbin() error {
	if strings.HasSuffix(os.Getenv("PATH"), ":/usr/sbin:/sbin") {
		return nil
	}
	return os.Setenv("PATH", os.Getenv("PATH")+":/usr/sbin:/sbin")
}

func lacking(programs []string) []string {
	return slices.DeleteFunc(slices.Clone(programs), func(name string) bool {
		_, err := exec.LookPath(name)
		return err == nil
	})
}

// apt runs apt-get. With run level 1 packages do not start their services; the caller starts the services that it
// needs.
func apt(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, "apt-get", args...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // dpkg ends in order
	cmd.WaitDelay = 30 * time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("packages %w: apt-get %s: %w: check the network and /etc/apt/sources.list:\n%s",
			ErrInstall, args[0], err, LastLines(string(out), 5))
	}
	return nil
}

// LastLines returns the end of a program's output, which says why it failed.
func LastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// UnmountBelow unmounts everything below a directory.
func UnmountBelow(dir string) error {
	data, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return err
	}
	var points []string
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); len(fields) > 1 && strings.HasPrefix(fields[1], dir+"/") {
			points = append(points, fields[1])
		}
	}
	slices.Reverse(points) // inner ones first
	for _, point := range points {
		if err := syscall.Unmount(point, syscall.MNT_DETACH); err != nil && !errors.Is(err, syscall.EINVAL) {
			return fmt.Errorf("unmounting %s: %w", point, err)
		}
	}
	return nil
}
