// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/imagetar"
	"github.com/fairlead-dev/fairlead/pkg/progress"

	"github.com/fairlead-dev/fairlead/e2e/offline/debian"
)

// suite is Debian's release. Systemd 252 of bookworm boots on hosts with control groups of version 1; later ones refuse.
const suite = "bookworm"

// packages are those of kind's own base image without network storage, and busybox-static for images of our own.
var packages = []string{
	"systemd", "systemd-sysv", "dbus",
	"conntrack", "iptables", "nftables", "iproute2", "ethtool", "util-linux", "mount", "kmod", "socat",
	"libseccomp2", "runc", "e2fsprogs",
	"bash", "ca-certificates", "curl", "jq", "procps", "busybox-static", "libnss-myhostname",
}

// nodeCommand is what a node runs; kindfiles.go has the first of them, the second is kind's.
var nodeCommand = []string{"/kind/bin/restrict-oom-score.sh", "/usr/local/bin/entrypoint", "/sbin/init"}

var errNotRoot = errors.New("only root can install a Debian system into a directory: run it with sudo -E")

// buildDebian makes the stage of Debian and kind's files.
func (b *builder) buildDebian(ctx context.Context, _, tag string) error {
	if os.Geteuid() != 0 {
		return errNotRoot
	}
	dir, err := os.MkdirTemp(b.workDir, "work-")
	if err != nil {
		return err
	}
	defer func() { _ = removeTree(dir) }()
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	root := filepath.Join(dir, "root")
	if err := b.step(fmt.Sprintf("Installing Debian %s: %d packages and what they need", suite, len(packages)), func() error {
		return b.debootstrap(ctx, root)
	}); err != nil {
		return err
	}
	return b.step("Adding kind's node files", func() error {
		if err := errors.Join(listPackages(ctx, root), slim(root), addKindFiles(root, b.kindDir)); err != nil {
			return err
		}
		layer, err := imagetar.Dir(root)
		if err != nil {
			return err
		}
		img, err := imagetar.New(imagetar.Config{
			Name: tag, Env: []string{"container=docker", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
			Entrypoint: nodeCommand, StopSignal: "SIGRTMIN+3",
		}, layer)
		if err != nil {
			return err
		}
		return b.load(ctx, img)
	})
}

// load puts an image into Docker.
func (b *builder) load(ctx context.Context, img *imagetar.Image) error {
	return b.docker.feed(ctx, func(w io.Writer) error { _, err := img.WriteTo(w); return err }, "load", "--quiet")
}

// step is one line of progress.
func (b *builder) step(title string, run func() error) error {
	return progress.Step(b.progress, title, func() (string, error) {
		began := time.Now()
		err := run()
		return fmt.Sprintf("%.1fs", time.Since(began).Seconds()), err
	})
}

// aptMirror is the first package mirror in the apt configuration of this machine.
func aptMirror(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "apt-get", "indextargets", "--format", "$(SITE)", "Created-By: Packages").Output()
	if err != nil {
		return "", fmt.Errorf("asking apt for its mirror: %w: the node image is made of Debian's packages: name a mirror with -mirror", err)
	}
	for site := range strings.Lines(string(out)) {
		if site = strings.TrimSpace(site); site != "" && !strings.Contains(site, "security") {
			return site, nil
		}
	}
	return "", errors.New("apt is set to no mirror: name one with -mirror")
}

func (b *builder) debootstrap(ctx context.Context, root string) error {
	if err := debian.Install(ctx, []string{"debootstrap"}, []string{"debootstrap"}, func(text string) { b.progress.Detail("%s", text) }); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(b.workDir, "debootstrap.log"))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	//nolint:gosec // the arguments are ours
	cmd := exec.CommandContext(ctx, "debootstrap", "--variant=minbase", "--include="+strings.Join(packages, ","), suite, root, b.mirror)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) } // dpkg and all
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		text, _ := os.ReadFile(log.Name())
		return fmt.Errorf("debootstrap from %s: %w (all of its output: %s):\n%s", b.mirror, err, log.Name(), debian.LastLines(string(text), 5))
	}
	return nil
}

// listPackages writes the package versions into the image, because they are the mirror's current ones.
func listPackages(ctx context.Context, root string) error {
	out, err := exec.CommandContext(ctx, "chroot", root, "dpkg-query", "--show", "--showformat=${Package} ${Version}\n").Output()
	if err != nil {
		return fmt.Errorf("listing Debian's packages: %w", err)
	}
	if err := os.MkdirAll(filepath.Join(root, "kind"), 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(root, "kind/debian-packages"), out, 0o644)
}

// slim removes files that a node never reads, and files that differ between installations of the same packages.
func slim(root string) error {
	var errs []error
	for _, pattern := range []string{
		"var/cache/apt/*", "var/cache/debconf/*-old", "var/cache/ldconfig/*", "var/lib/apt/lists/*", "var/lib/dpkg/*-old", "var/log/*",
		"usr/share/man/*", "usr/share/info/*", "usr/share/locale/*", "usr/share/doc/*/*", "debootstrap",
		"etc/machine-id", "var/lib/dbus/machine-id", "etc/resolv.conf", "etc/hostname", "var/lib/systemd/catalog/database",
		"etc/passwd-", "etc/group-", "etc/shadow-", "etc/gshadow-",
	} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		errs = append(errs, err)
		for _, path := range found {
			if !strings.HasSuffix(path, "/copyright") {
				errs = append(errs, os.RemoveAll(path))
			}
		}
	}
	shadow := filepath.Join(root, "etc/shadow") // holds the day of each user's last change
	text, err := os.ReadFile(shadow)
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	lines := strings.Split(string(text), "\n")
	for i, line := range lines {
		if fields := strings.Split(line, ":"); len(fields) > 2 {
			fields[2] = "1"
			lines[i] = strings.Join(fields, ":")
		}
	}
	errs = append(errs, os.WriteFile(shadow, []byte(strings.Join(lines, "\n")), 0o640))
	return errors.Join(slices.DeleteFunc(errs, func(err error) bool { return err == nil })...)
}
