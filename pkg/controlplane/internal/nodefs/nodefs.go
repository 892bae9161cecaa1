// SPDX-License-Identifier: Apache-2.0

// Package nodefs reads and replaces files of a node, whose root may be a directory of this
// machine. Start at [Host].
package nodefs

import (
	"bytes"
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

// ErrForeign is returned for what cannot be a file of this program.
var ErrForeign = errors.New("not written by fairlead")

// Prefixes of temporary files, next to the files that they replace, so that
// replacing a file is one rename. The kubelet ignores names that begin with a
// dot (k8s.io/kubernetes/pkg/kubelet/config, extractFromDir and
// produceWatchEvent).
const (
	NewPrefix = ".fairlead-new."
	OldPrefix = ".fairlead-old."
)

// Host is the file system of the node. Paths are those of the node.
type Host struct {
	// Root is prepended to every path; "" or "/" for the node itself.
	Root string
}

// Path returns the path by which this process reaches a path of the node.
func (h Host) Path(p string) string {
	return hostpath.Path(h.Root, p)
}

// Follow is Path for a file or directory that is read: it resolves the last component, too.
func (h Host) Follow(p string) string { return hostpath.Follow(h.Root, p) }

// Read reads a file. An empty directory in its place counts as no file.
func (h Host) Read(p string) ([]byte, error) {
	data, err := os.ReadFile(h.Follow(p))
	if errors.Is(err, syscall.EISDIR) && h.EmptyDir(p) {
		return nil, &fs.PathError{Op: "open", Path: p, Err: fs.ErrNotExist}
	}
	if err != nil {
		return nil, h.Strip(err)
	}
	return data, nil
}

// ReadGiven reads the given file of this machine, or the node's usual file if none is given. It
// also returns the name of that file.
func (h Host) ReadGiven(given, usual string) (data []byte, name string, err error) {
	if given == "" {
		data, err = h.Read(usual)
		return data, usual, err
	}
	data, err = os.ReadFile(given)
	return data, given, err
}

// EmptyDir reports whether there is an empty directory in the place of a file. Container runtimes
// make one when they start a container whose mounted file does not exist: a Pod that was started
// without its kubeconfig, or whose kubeconfig has just been removed. It counts as no file.
func (h Host) EmptyDir(p string) bool {
	info, err := os.Lstat(h.Path(p))
	if err != nil || !info.IsDir() {
		return false
	}
	entries, err := os.ReadDir(h.Path(p))
	return err == nil && len(entries) == 0
}

// Clear removes an empty directory that is in the place of a file.
func (h Host) Clear(p string) error {
	if !h.EmptyDir(p) {
		return nil
	}
	return h.Strip(os.Remove(h.Path(p)))
}

// Rename puts one file in the place of another. A runtime may make a directory there meanwhile.
func (h Host) Rename(from, to string) (err error) {
	for range 3 {
		if err = h.Clear(to); err != nil {
			return err
		}
		if err = os.Rename(h.Path(from), h.Path(to)); !errors.Is(err, syscall.EISDIR) && !errors.Is(err, syscall.EEXIST) {
			break
		}
	}
	return h.Strip(err)
}

// Strip replaces this process's paths in an error by the node's.
func (h Host) Strip(err error) error {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		return &fs.PathError{Op: pathErr.Op, Path: h.Name(pathErr.Path), Err: pathErr.Err}
	}
	var linkErr *os.LinkError
	if errors.As(err, &linkErr) {
		return &os.LinkError{Op: linkErr.Op, Old: h.Name(linkErr.Old), New: h.Name(linkErr.New), Err: linkErr.Err}
	}
	return err
}

// Name returns the node's path of a path of this process.
func (h Host) Name(p string) string {
	if h.Root == "" || h.Root == "/" {
		return p
	}
	return "/" + strings.TrimPrefix(strings.TrimPrefix(p, filepath.Clean(h.Root)), "/")
}

// Absent is the fingerprint of a file that does not exist.
const Absent = ""

// Fingerprint identifies content and permissions of a file.
func Fingerprint(data []byte, mode fs.FileMode) string {
	sum := sha256.Sum256(data)
	return fmt.Sprintf("%s-%04o", hex.EncodeToString(sum[:]), mode.Perm())
}

// Fingerprint returns the fingerprint of the file at p, or Absent if there is
// none.
func (h Host) Fingerprint(p string) (string, error) {
	info, err := os.Lstat(h.Path(p))
	if errors.Is(err, fs.ErrNotExist) {
		return Absent, nil
	}
	if err != nil {
		return "", h.Strip(err)
	}
	if info.IsDir() && h.EmptyDir(p) {
		return Absent, nil
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s is not a regular file: %w", p, ErrForeign)
	}
	data, err := h.Read(p)
	if err != nil {
		return "", err
	}
	return Fingerprint(data, info.Mode()), nil
}

// Present returns the fingerprint and the mode of a file that must exist.
func (h Host) Present(p string) (fp string, mode fs.FileMode, err error) {
	fp, err = h.Fingerprint(p)
	if err == nil && fp == Absent {
		err = fmt.Errorf("%s disappeared while the command was running: restore it and retry: %w", p, fs.ErrNotExist)
	}
	return fp, ModeOf(fp), err
}

// ModeOf returns the mode in a fingerprint; a secret's mode if the fingerprint
// has none.
func ModeOf(fp string) fs.FileMode {
	mode := fs.FileMode(0o600)
	if i := strings.LastIndexByte(fp, '-'); i >= 0 {
		_, _ = fmt.Sscanf(fp[i+1:], "%o", &mode)
	}
	return mode.Perm()
}

// HasFile reports whether there is something at p other than the empty directory of a runtime.
func (h Host) HasFile(p string) bool { return h.Exists(p) && !h.EmptyDir(p) }

// Exists reports whether there is anything at p.
func (h Host) Exists(p string) bool {
	_, err := os.Lstat(h.Path(p))
	return err == nil
}

// Write creates a file that has its mode from the start and whose content is
// synced to disk. It replaces an existing file; use it only for names that only
// this package uses.
func (h Host) Write(p string, data []byte, mode fs.FileMode, owner *syscall.Stat_t) (err error) {
	name := h.Path(p)
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return h.Strip(err)
	}
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode.Perm()) //nolint:gosec // the mode is the point
	if err != nil {
		return h.Strip(err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(name)
			err = h.Strip(err)
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

// SyncDir makes renames in a directory durable. It ignores errors of file
// systems that do not support that.
func (h Host) SyncDir(dir string) {
	if d, err := os.Open(h.Follow(dir)); err == nil {
		_ = d.Sync()
		_ = d.Close()
	}
}

// Owner returns the owner of a file, or nil if there is no file.
func (h Host) Owner(p string) *syscall.Stat_t {
	info, err := os.Lstat(h.Path(p))
	if err != nil {
		return nil
	}
	stat, _ := info.Sys().(*syscall.Stat_t)
	return stat
}

// Beside returns the name of a temporary file next to p.
func Beside(prefix, p string) string {
	return filepath.Join(filepath.Dir(p), prefix+filepath.Base(p))
}

// OnlyOwner returns a mode without the permissions of group and others.
func OnlyOwner(mode fs.FileMode) fs.FileMode { return mode &^ 0o077 }

// IsOpen reports whether group or others have any permission on a file.
func IsOpen(mode fs.FileMode) bool { return mode != OnlyOwner(mode) }

// IsBlank reports whether a file is empty. The kubelet creates an empty file for a FileOrCreate
// mount whose file does not exist, so such a file can be replaced.
func IsBlank(data []byte) bool { return len(bytes.TrimSpace(data)) == 0 }
