// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/term"
)

// catAll copies standard input to standard output until it ends.
func catAll() error {
	_, err := io.Copy(os.Stdout, os.Stdin)
	return err
}

// copySome copies that many bytes and says their SHA-256 on standard error. It
// does not wait for the end of the input, which simulated nodes never pass on.
func copySome(args []string) error {
	n, err := number(args)
	if err != nil {
		return err
	}
	hash := sha256.New()
	if _, err := io.CopyN(io.MultiWriter(os.Stdout, hash), os.Stdin, int64(n)); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "%x\n", hash.Sum(nil))
	return nil
}

// head is head -c N.
func head(args []string) error {
	if len(args) != 2 || args[0] != "-c" {
		return errors.New("want head -c N")
	}
	n, err := number(args[1:])
	if err != nil {
		return err
	}
	_, err = io.CopyN(os.Stdout, os.Stdin, int64(n))
	return err
}

func exit(args []string) error {
	n, err := number(args)
	if err != nil {
		return err
	}
	return exitError(n)
}

// tty says whether standard input is a terminal, and repeats words until one is "bye".
func tty() error {
	fmt.Printf("terminal: %v\n", term.IsTerminal(int(os.Stdin.Fd())))
	for {
		var word string
		if _, err := fmt.Scanln(&word); err != nil || word == "bye" {
			return err
		}
		fmt.Printf("said: %s\n", word)
	}
}

// sum prints the SHA-256 of a file.
func sum(args []string) error {
	if len(args) != 1 {
		return errors.New("want sum FILE")
	}
	f, err := os.Open(args[0])
	if err != nil {
		return err
	}
	defer f.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, f); err != nil {
		return err
	}
	fmt.Printf("%x\n", hash.Sum(nil))
	return nil
}

func number(args []string) (int, error) {
	if len(args) != 1 {
		return 0, errors.New("want a number")
	}
	return strconv.Atoi(args[0])
}

// tarCommand knows the two calls that kubectl cp makes: tar cf - PATH, and
// tar -xmf - [-C DIR].
func tarCommand(args []string) error {
	if len(args) < 2 || args[1] != "-" {
		return fmt.Errorf("tar %v: want cf - PATH or -xmf - [-C DIR]", args)
	}
	switch {
	case strings.Contains(args[0], "c") && len(args) == 3:
		return pack(os.Stdout, args[2])
	case strings.Contains(args[0], "x"):
		dir := "."
		if len(args) == 4 && args[2] == "-C" {
			dir = args[3]
		}
		return unpack(os.Stdin, dir)
	}
	return fmt.Errorf("tar %v: want cf - PATH or -xmf - [-C DIR]", args)
}

// pack writes the regular files at or below a path.
func pack(out io.Writer, path string) error {
	w := tar.NewWriter(out)
	err := filepath.WalkDir(path, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		header := &tar.Header{Name: strings.TrimPrefix(path, "/"), Mode: 0o644, Size: int64(len(data))}
		if err := w.WriteHeader(header); err != nil {
			return err
		}
		_, err = w.Write(data)
		return err
	})
	return errors.Join(err, w.Close())
}

// unpack writes what it reads below dir, and nothing outside.
func unpack(in io.Reader, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	r := tar.NewReader(in)
	for {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(header.Name, "/")
		if header.Typeflag == tar.TypeDir {
			if err := root.MkdirAll(filepath.Clean(name), 0o755); err != nil {
				return err
			}
			continue
		}
		if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		f, err := root.Create(name)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, r)
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
}
