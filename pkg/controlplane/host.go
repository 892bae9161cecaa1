// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/fairlead-dev/fairlead/pkg/internal/hostpath"
)

// StateDir is where the package keeps its journal, its state and backups of the
// files that it changed. Only root has access. It is not in the static Pod
// directory, because the kubelet runs every file there.
const StateDir = "/etc/kubernetes/fairlead"

// Prefixes of temporary files, next to the files that they replace, so that
// replacing a file is one rename. The kubelet ignores names that begin with a
// dot (k8s.io/kubernetes/pkg/kubelet/config, extractFromDir and
// produceWatchEvent).
const (
	newPrefix = ".fairlead-new."
	oldPrefix = ".fairlead-old."
)

// host is the file system of the node. Paths are those of the node.
type host struct {
	// root is prepended to every path; "" or "/" for the node itself.
	root string
}

// path returns the path by which this process reaches a path of the node.
func (h host) path(p string) string {
	return hostpath.Path(h.root, p)
}

// follow is path for a file or directory that is read: it resolves the last component, too.
func (h host) follow(p string) string { return hostpath.Follow(h.root, p) }

func (h host) read(p string) ([]byte, error) {
	data, err := os.ReadFile(h.follow(p))
	if errors.Is(err, syscall.EISDIR) && h.emptyDir(p) {
		return nil, &fs.PathError{Op: "open", Path: p, Err: fs.ErrNotExist}
	}
	if err != nil {
		return nil, h.strip(err)
	}
	return data, nil
}

// emptyDir tells whether there is an empty directory in the place of a file. Container runtimes
// make one when they start a container whose mounted file does not exist: a Pod that was started
// without its kubeconfig, or whose kubeconfig has just been removed. It counts as no file.
func (h host) emptyDir(p string) bool {
	info, err := os.Lstat(h.path(p))
	if err != nil || !info.IsDir() {
		return false
	}
	entries, err := os.ReadDir(h.path(p))
	return err == nil && len(entries) == 0
}

// clear removes an empty directory that is in the place of a file.
func (h host) clear(p string) error {
	if !h.emptyDir(p) {
		return nil
	}
	return h.strip(os.Remove(h.path(p)))
}

// rename puts one file in the place of another. A runtime may make a directory there meanwhile.
func (h host) rename(from, to string) (err error) {
	for range 3 {
		if err = h.clear(to); err != nil {
			return err
		}
		if err = os.Rename(h.path(from), h.path(to)); !errors.Is(err, syscall.EISDIR) && !errors.Is(err, syscall.EEXIST) {
			break
		}
	}
	return h.strip(err)
}

// strip replaces this process's path in an error by the node's.
func (h host) strip(err error) error {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		return &fs.PathError{Op: pathErr.Op, Path: h.name(pathErr.Path), Err: pathErr.Err}
	}
	return err
}

func (h host) name(p string) string {
	if h.root == "" || h.root == "/" {
		return p
	}
	return "/" + strings.TrimPrefix(strings.TrimPrefix(p, filepath.Clean(h.root)), "/")
}

// absent is the fingerprint of a file that does not exist.
const absent = ""

// fingerprint identifies content and permissions of a file.
func fingerprint(data []byte, mode fs.FileMode) string {
	sum := sha256.Sum256(data)
	return fmt.Sprintf("%s-%04o", hex.EncodeToString(sum[:]), mode.Perm())
}

// fingerprint returns the fingerprint of the file at p, or absent if there is
// none.
func (h host) fingerprint(p string) (string, error) {
	info, err := os.Lstat(h.path(p))
	if errors.Is(err, fs.ErrNotExist) {
		return absent, nil
	}
	if err != nil {
		return "", h.strip(err)
	}
	if info.IsDir() && h.emptyDir(p) {
		return absent, nil
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s is not a regular file: %w", p, errForeign)
	}
	data, err := h.read(p)
	if err != nil {
		return "", err
	}
	return fingerprint(data, info.Mode()), nil
}

// present returns the fingerprint and the mode of a file that must exist.
func (h host) present(p string) (fp string, mode fs.FileMode, err error) {
	fp, err = h.fingerprint(p)
	if err == nil && fp == absent {
		err = fmt.Errorf("%s has just gone: run the command again when it is back: %w", p, fs.ErrNotExist)
	}
	return fp, modeOf(fp), err
}

// modeOf returns the mode in a fingerprint; a secret's mode if the fingerprint
// has none.
func modeOf(fp string) fs.FileMode {
	mode := fs.FileMode(0o600)
	if i := strings.LastIndexByte(fp, '-'); i >= 0 {
		_, _ = fmt.Sscanf(fp[i+1:], "%o", &mode)
	}
	return mode.Perm()
}

// hasFile tells whether there is something at p other than the empty directory of a runtime.
func (h host) hasFile(p string) bool { return h.exists(p) && !h.emptyDir(p) }

func (h host) exists(p string) bool {
	_, err := os.Lstat(h.path(p))
	return err == nil
}

// write creates a file that has its mode from the start and whose content is
// synced to disk. It replaces an existing file; use it only for names that only
// this package uses.
func (h host) write(p string, data []byte, mode fs.FileMode, owner *syscall.Stat_t) (err error) {
	name := h.path(p)
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return h.strip(err)
	}
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode.Perm()) //nolint:gosec // the mode is the point
	if err != nil {
		return h.strip(err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(name)
			err = h.strip(err)
		}
	}()
	if _, err = file.Write(data); err == nil {
		err = file.Chmod(mode.Perm()) // independent of the umask
	}
	if err == nil && owner != nil && os.Geteuid() == 0 {
		err = file.Chown(int(owner.Uid), int(owner.Gid))
	}
	if err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close())
}

// syncDir makes renames in a directory durable. It ignores errors of file
// systems that do not support that.
func (h host) syncDir(dir string) {
	if d, err := os.Open(h.follow(dir)); err == nil {
		_ = d.Sync()
		_ = d.Close()
	}
}

// owner returns the owner of a file, or nil if there is no file.
func (h host) owner(p string) *syscall.Stat_t {
	info, err := os.Lstat(h.path(p))
	if err != nil {
		return nil
	}
	stat, _ := info.Sys().(*syscall.Stat_t)
	return stat
}

func beside(prefix, p string) string {
	return filepath.Join(filepath.Dir(p), prefix+filepath.Base(p))
}
