// SPDX-License-Identifier: Apache-2.0

package imagetar

import (
	"archive/tar"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// File is one entry of a layer.
type File struct {
	// Name is the path in the image, with or without the leading slash. Directories above it need not be listed.
	Name string
	// Mode holds permissions and type: regular, directory or symbolic link. Permissions default to 0644 for files and
	// 0755 for directories.
	Mode fs.FileMode
	// Data is the content; or Source is the file of this machine that holds it, which must not change meanwhile.
	Data   []byte
	Source string
	// Link is where a symbolic link points to.
	Link string
	// UID and GID own the entry. Default: root.
	UID, GID int
}

// Layer is a list of files in their final order.
type Layer []File

// ErrFile says that a file cannot become part of an image.
var ErrFile = errors.New("not a file for an image")

// Files makes a layer of the files and of the directories that they need.
func Files(files ...File) (Layer, error) {
	byName := map[string]File{}
	for _, f := range files {
		f.Name = strings.TrimPrefix(path.Clean("/"+f.Name), "/")
		if f.Name == "" {
			return nil, fmt.Errorf("%w: an empty name", ErrFile)
		}
		if _, twice := byName[f.Name]; twice {
			return nil, fmt.Errorf("%w: %s is there twice", ErrFile, f.Name)
		}
		byName[f.Name] = f
	}
	for name := range byName {
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			if above, ok := byName[dir]; !ok {
				byName[dir] = File{Name: dir, Mode: fs.ModeDir | 0o755}
			} else if !above.Mode.IsDir() {
				return nil, fmt.Errorf("%w: %s is below %s, which is no directory", ErrFile, name, dir)
			}
		}
	}
	layer := make(Layer, 0, len(byName))
	for _, f := range byName {
		layer = append(layer, f)
	}
	slices.SortFunc(layer, func(a, b File) int { return cmp.Compare(a.Name, b.Name) })
	return layer, nil
}

// Dir makes a layer of everything below a directory, owners and permissions included. Sockets and devices are left out:
// whatever runs the image makes its own.
func Dir(root string) (Layer, error) {
	var layer Layer
	err := filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || file == root {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		f := File{Mode: info.Mode()}
		if f.Name, err = filepath.Rel(root, file); err != nil {
			return err
		}
		if stat, ok := info.Sys().(*syscall.Stat_t); ok {
			f.UID, f.GID = int(stat.Uid), int(stat.Gid)
		}
		switch info.Mode().Type() {
		case 0:
			f.Source = file
		case fs.ModeDir:
		case fs.ModeSymlink:
			f.Link, err = os.Readlink(file)
		default:
			return nil
		}
		layer = append(layer, f)
		return err
	})
	return layer, err
}

// epoch is the time of everything in an image: times of files would make images of the same files differ.
var epoch = time.Unix(0, 0).UTC()

// WriteTar writes the layer as a tar archive.
func (l Layer) WriteTar(w io.Writer) error {
	archive := tar.NewWriter(w)
	for _, f := range l {
		if err := f.writeTo(archive); err != nil {
			return fmt.Errorf("%s: %w", f.Name, err)
		}
	}
	return archive.Close()
}

func (f File) writeTo(archive *tar.Writer) error {
	header := &tar.Header{Name: f.Name, Mode: f.permissions(), Uid: f.UID, Gid: f.GID, ModTime: epoch}
	var content io.Reader
	switch f.Mode.Type() {
	case fs.ModeDir:
		header.Typeflag, header.Name = tar.TypeDir, f.Name+"/"
	case fs.ModeSymlink:
		header.Typeflag, header.Linkname = tar.TypeSymlink, f.Link
	case 0:
		header.Typeflag, header.Size, content = tar.TypeReg, int64(len(f.Data)), bytes.NewReader(f.Data)
		if f.Source != "" {
			file, size, err := open(f.Source)
			if err != nil {
				return err
			}
			defer func() { _ = file.Close() }()
			header.Size, content = size, file
		}
	default:
		return fmt.Errorf("%w: mode %v", ErrFile, f.Mode)
	}
	if err := archive.WriteHeader(header); err != nil || content == nil {
		return err
	}
	_, err := io.Copy(archive, content)
	return err
}

// permissions in the way of chmod(2), set-user-ID and the like included.
func (f File) permissions() int64 {
	mode := int64(f.Mode.Perm())
	if mode == 0 && f.Mode.Type() == 0 {
		mode = 0o644
	}
	switch f.Mode.Type() {
	case fs.ModeSymlink:
		return 0o777
	case fs.ModeDir:
		mode = cmp.Or(mode, 0o755)
	}
	for bit, value := range map[fs.FileMode]int64{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000} {
		if f.Mode&bit != 0 {
			mode |= value
		}
	}
	return mode
}

func open(name string) (*os.File, int64, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, 0, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%w: %s is no regular file", ErrFile, name)
	}
	if err != nil {
		_ = file.Close()
		return nil, 0, err
	}
	return file, info.Size(), nil
}
