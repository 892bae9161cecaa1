// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	pathpkg "path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// checksumFile lists the other files, in the form that `sha256sum --check` reads.
const checksumFile = "SHA256SUMS"

// pack writes the archive of a target's programs. Owner, times and order do not depend on who builds, or when.
func (o *Options) pack(t target, bin, files string) (err error) {
	name := fmt.Sprintf("fairlead-%s-%s", o.Version, t)
	file, err := os.Create(filepath.Join(files, name+".tar.gz"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	zipped, err := gzip.NewWriterLevel(file, gzip.BestCompression)
	if err != nil {
		return err
	}
	archive := tar.NewWriter(zipped)
	entries, err := os.ReadDir(bin)
	if err != nil {
		return err
	}
	for _, e := range entries {
		err = errors.Join(err, add(archive, filepath.Join(bin, e.Name()), name+"/"+e.Name(), 0o755))
	}
	for _, from := range slices.Sorted(maps.Keys(o.Extra)) {
		err = errors.Join(err, addTree(archive, filepath.Join(o.Source, from), name+"/"+o.Extra[from]))
	}
	if err != nil {
		return err
	}
	return errors.Join(archive.Close(), zipped.Close())
}

// addTree adds a file, or all files of a directory in the order of their names.
func addTree(archive *tar.Writer, path, name string) error {
	return filepath.WalkDir(path, func(file string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		below, err := filepath.Rel(path, file)
		if err != nil {
			return err
		}
		return add(archive, file, pathpkg.Join(name, filepath.ToSlash(below)), 0o644)
	})
}

func add(archive *tar.Writer, path, name string, mode int64) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if err := archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: info.Size(), ModTime: time.Unix(0, 0), Format: tar.FormatPAX}); err != nil {
		return err
	}
	_, err = io.Copy(archive, file)
	return err
}

// checksums writes the checksums of all files so far.
func checksums(files string) error {
	entries, err := os.ReadDir(files) // sorted
	if err != nil {
		return err
	}
	var list strings.Builder
	for _, e := range entries {
		sum, err := sumOf(filepath.Join(files, e.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&list, "%s  %s\n", sum, e.Name())
	}
	return os.WriteFile(filepath.Join(files, checksumFile), []byte(list.String()), 0o644) //nolint:gosec // for everyone to read
}

func sumOf(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// ErrDiffers says that two builds of the same sources are not the same.
var ErrDiffers = errors.New("the two builds differ")

// Compare checks that two releases have the same files with the same content.
func Compare(a, b string) error {
	var lists [2][]byte
	for i, dir := range []string{a, b} {
		if err := checkSums(dir); err != nil {
			return err
		}
		list, err := os.ReadFile(filepath.Join(dir, checksumFile))
		if err != nil {
			return err
		}
		lists[i] = list
	}
	if bytes.Equal(lists[0], lists[1]) {
		return nil
	}
	other := map[string]bool{}
	for line := range bytes.Lines(lists[1]) {
		other[string(line)] = true
	}
	err := fmt.Errorf("%w: %s and %s", ErrDiffers, a, b)
	for line := range bytes.Lines(lists[0]) {
		if !other[string(line)] {
			_, name, _ := strings.Cut(strings.TrimSpace(string(line)), "  ")
			err = fmt.Errorf("%w: %s", err, name)
		}
	}
	return err
}

// checkSums compares the files of a release with its list.
func checkSums(dir string) error {
	list, err := os.ReadFile(filepath.Join(dir, checksumFile))
	if err != nil {
		return err
	}
	for line := range bytes.Lines(list) {
		want, name, ok := strings.Cut(strings.TrimSpace(string(line)), "  ")
		if !ok {
			return fmt.Errorf("%s: line %q has no name", checksumFile, line)
		}
		got, err := sumOf(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		if got != want {
			return fmt.Errorf("%s in %s does not have the checksum in %s", name, dir, checksumFile)
		}
	}
	return nil
}
