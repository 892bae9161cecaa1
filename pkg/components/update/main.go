// SPDX-License-Identifier: Apache-2.0

// Command update brings components.mod and components.sum up to date with the root go.mod and tidies them. With -check
// it changes nothing and fails if there is something to do. Run it in the root directory:
//
//	go run ./pkg/components/update [-check]
//
// The version of a program that the root module does not name, such as etcd, is changed in components.mod by hand first.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/fairlead-dev/fairlead/pkg/components"
	"github.com/fairlead-dev/fairlead/pkg/interrupt"
)

const (
	rootFile = "go.mod"
	modFile  = "pkg/components/components.mod"
	sumFile  = "pkg/components/components.sum"
)

var errStale = errors.New("out of date: run make update-components")

func main() {
	check := flag.Bool("check", false, "fail if the files are out of date, and leave them as they are")
	flag.Parse()
	ctx, stop := interrupt.Context(context.Background())
	defer stop()
	if err := run(ctx, *check); err != nil {
		fmt.Fprintln(os.Stderr, "update components:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, check bool) error {
	mod, sum, err := updated(ctx)
	if err != nil {
		return err
	}
	for path, data := range map[string][]byte{modFile: mod, sumFile: sum} {
		old, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		switch {
		case bytes.Equal(old, data):
		case check:
			return fmt.Errorf("%s: %w", path, errStale)
		default:
			if err := os.WriteFile(path, data, 0o644); err != nil {
				return err
			}
			fmt.Println("updated", path)
		}
	}
	return nil
}

// updated returns what the two files should hold.
func updated(ctx context.Context) (mod, sum []byte, err error) {
	dir, err := os.MkdirTemp("", "components")
	if err != nil {
		return nil, nil, err
	}
	defer os.RemoveAll(dir)
	root, err := os.ReadFile(rootFile)
	if err != nil {
		return nil, nil, fmt.Errorf("run this in the root directory: %w", err)
	}
	pinned, err := os.ReadFile(modFile)
	if err != nil {
		return nil, nil, err
	}
	if sum, err = os.ReadFile(sumFile); err != nil {
		return nil, nil, err
	}
	if mod, err = align(root, pinned, func(version string) ([]byte, error) { return kubernetesMod(ctx, version) }); err != nil {
		return nil, nil, err
	}
	return tidy(ctx, dir, mod, sum)
}

func tidy(ctx context.Context, dir string, mod, sum []byte) (tidyMod, tidySum []byte, err error) {
	modPath, sumPath := filepath.Join(dir, "go.mod"), filepath.Join(dir, "go.sum")
	if err := errors.Join(os.WriteFile(modPath, mod, 0o600), os.WriteFile(sumPath, sum, 0o600)); err != nil {
		return nil, nil, err
	}
	if _, err := goTool(ctx, dir, "mod", "tidy"); err != nil {
		return nil, nil, err
	}
	tidyMod, err1 := os.ReadFile(modPath)
	tidySum, err2 := os.ReadFile(sumPath)
	return tidyMod, tidySum, errors.Join(err1, err2)
}

func goTool(ctx context.Context, dir string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), components.Environ()...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %v: %w\n%s", args, err, stderr.Bytes())
	}
	return out, nil
}
