// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// addKindFiles changes a Debian system as images/base/Dockerfile in kind's module does.
func addKindFiles(root, kindDir string) error {
	if err := copyKindFiles(filepath.Join(kindDir, "images/base/files"), root); err != nil {
		return err
	}
	var errs []error
	for _, pattern := range []string{
		"lib/systemd/system/sysinit.target.wants/systemd-tmpfiles-setup.service",
		"lib/systemd/system/multi-user.target.wants/*",
		"etc/systemd/system/*.wants/*",
		"lib/systemd/system/local-fs.target.wants/*",
		"lib/systemd/system/sockets.target.wants/*udev*",
		"lib/systemd/system/sockets.target.wants/*initctl*",
		"lib/systemd/system/basic.target.wants/*",
	} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		errs = append(errs, err)
		for _, path := range found {
			errs = append(errs, os.Remove(path))
		}
	}
	return errors.Join(append(errs, setUpServices(root), addDropIns(root))...)
}

// copyKindFiles copies kind's files: scripts 0755, all others 0644.
func copyKindFiles(from, root string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		to := filepath.Join(root, rel)
		if entry.IsDir() {
			return os.MkdirAll(to, 0o755)
		}
		mode := fs.FileMode(0o644)
		if strings.HasPrefix(rel, "usr/local/bin/") || strings.HasPrefix(rel, "kind/bin/") {
			mode = 0o755
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := os.WriteFile(to, data, mode); err != nil {
			return err
		}
		return os.Chmod(to, mode) // whatever the umask and the module cache's read-only files say
	})
}

// setUpServices enables and masks services as systemctl would, and makes the directories that packages would bring.
func setUpServices(root string) error {
	const units = "/etc/systemd/system/"
	links := map[string]string{
		units + "multi-user.target.wants/kubelet.service":          units + "kubelet.service",
		units + "multi-user.target.wants/containerd.service":       units + "containerd.service",
		units + "multi-user.target.wants/undo-mount-hacks.service": units + "undo-mount-hacks.service",
		units + "systemd-binfmt.service":                           "/dev/null",
	}
	var errs []error
	for link, target := range links {
		path := filepath.Join(root, link)
		errs = append(errs, os.MkdirAll(filepath.Dir(path), 0o755), os.Symlink(target, path))
	}
	for _, dir := range []string{"etc/kubernetes/manifests", "opt/cni/bin", "etc/cni/net.d", "kind/manifests", "LICENSES"} {
		errs = append(errs, os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	journal, err := os.OpenFile(filepath.Join(root, "etc/systemd/journald.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	_, err = journal.WriteString("ReadKMsg=no\n")
	errs = append(errs, err, journal.Close())
	// minbase has them, empty; systemd and kind's entrypoint fill them.
	for _, file := range []string{"etc/machine-id", "etc/resolv.conf", "etc/hostname"} {
		errs = append(errs, os.WriteFile(filepath.Join(root, file), nil, 0o644))
	}
	return errors.Join(errs...)
}

// dropIns make the image boot on hosts where released node images do not, with no configuration by the user:
// where control groups are of version 1, and where CAP_SYS_RESOURCE is missing, which containers with a negative OOM score need.
var dropIns = map[string]struct {
	mode    fs.FileMode
	content string
}{
	"etc/default/kubelet": {0o644, "KUBELET_EXTRA_ARGS=--runtime-cgroups=/system.slice/containerd.service --config-dir=/etc/kubernetes/kubelet.conf.d\n"},
	"etc/kubernetes/kubelet.conf.d/10-cgroup-v1.conf": {0o644, `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
`},
	strings.TrimPrefix(nodeCommand[0], "/"): {0o755, `#!/bin/bash
# The first process of a node, before kind's own entrypoint: from its first words on kind may write the same file, and
# whichever edits it while the other does would leave it empty. Bit 24 is CAP_SYS_RESOURCE.
set -o errexit -o nounset -o pipefail
bounding="$(awk '/^CapBnd:/ {print $2}' /proc/self/status)"
if (( (16#${bounding} >> 24 & 1) == 0 )); then
  sed -i 's/restrict_oom_score_adj = false/restrict_oom_score_adj = true/' /etc/containerd/config.toml
fi
exec "$@"
`},
}

func addDropIns(root string) error {
	var errs []error
	for name, file := range dropIns {
		path := filepath.Join(root, name)
		errs = append(errs, os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(file.content), file.mode), os.Chmod(path, file.mode))
	}
	return errors.Join(errs...)
}
