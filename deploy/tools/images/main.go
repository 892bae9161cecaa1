// SPDX-License-Identifier: Apache-2.0

// Command images makes the container images of this repository's programs from bin/, with no docker build:
//
//	make images     # or, in deploy/tools: go run ./images [-bin ../../bin] [-o ../../_output/images]
//
// Every image becomes an archive that `docker load`, `ctr images import`, podman and skopeo read, and is loaded into Docker
// where one answers. The same programs give the same images.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/fairlead-dev/fairlead/pkg/imagetar"
	"github.com/fairlead-dev/fairlead/pkg/interrupt"
)

func main() {
	bin := flag.String("bin", "bin", "directory with the programs")
	out := flag.String("o", "_output/images", "directory for the archives")
	flag.Parse()
	ctx, stop := interrupt.Context(context.Background())
	defer stop()
	if err := run(ctx, *bin, *out); err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, bin, out string) error {
	images, err := imagetar.Project(bin)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	load := exec.CommandContext(ctx, "docker", "version").Run() == nil
	for _, img := range images {
		file := filepath.Join(out, strings.NewReplacer("/", "-", ":", "-").Replace(img.ShortName())+".tar")
		if err := write(img, file); err != nil {
			return err
		}
		fmt.Printf("%s  %s  %s\n", img.ShortName(), img.ID()[:len("sha256:")+12], file)
		if !load {
			continue
		}
		if text, err := exec.CommandContext(ctx, "docker", "load", "--quiet", "--input", file).CombinedOutput(); err != nil {
			return fmt.Errorf("docker load %s: %w: %s", file, err, bytes.TrimSpace(text))
		}
	}
	if load {
		fmt.Println("Docker has them all.")
	} else {
		fmt.Println("No Docker daemon answers: load the archives where they are needed, for example with ctr --namespace=k8s.io images import.")
	}
	return nil
}

// write leaves a whole archive or none.
func write(img *imagetar.Image, file string) (err error) {
	tmp, err := os.CreateTemp(filepath.Dir(file), ".image-")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			if gone := os.Remove(tmp.Name()); gone != nil && !errors.Is(gone, fs.ErrNotExist) {
				err = errors.Join(err, gone)
			}
		}
	}()
	_, err = img.WriteTo(tmp)
	if err == nil {
		err = tmp.Chmod(0o644)
	}
	if closeErr := tmp.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	return os.Rename(tmp.Name(), file)
}
