// SPDX-License-Identifier: Apache-2.0

package imagetar

import (
	"debug/elf"
	"errors"
	"fmt"
)

// ErrBinary says that a program cannot run in an image that holds nothing else.
var ErrBinary = errors.New("not a static Linux program")

// Program makes an image that holds one static binary, and files next to it if need be.
func Program(c Config, path, binary string, more ...File) (*Image, error) {
	if err := static(binary); err != nil {
		return nil, fmt.Errorf("image %s: %w", c.Name, err)
	}
	layer, err := Files(append(more, File{Name: path, Mode: 0o755, Source: binary})...)
	if err != nil {
		return nil, err
	}
	return New(c, layer)
}

// static reports whether a file is a Linux program that needs no other file.
func static(binary string) error {
	file, _, err := open(binary)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	program, err := elf.NewFile(file)
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrBinary, binary, err)
	}
	for _, part := range program.Progs {
		if part.Type == elf.PT_INTERP {
			return fmt.Errorf("%w: %s is linked dynamically: build it with CGO_ENABLED=0", ErrBinary, binary)
		}
	}
	return nil
}
