// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/fairlead-dev/fairlead/pkg/imagetar"
)

// Options say what to release.
type Options struct {
	// Source is the directory of the module, Out that of the release.
	Source, Out string
	// Version is in the names of files.
	Version string
	// Programs are packages of commands.
	Programs []string
	// Targets are operating systems and architectures: linux/amd64.
	Targets []string
	// LDFlags are for Go's linker.
	LDFlags string
	// Images makes the images of one architecture from a directory of programs. Default: those of this project.
	Images func(architecture, bin string) ([]*imagetar.Image, error)
	// Extra are further files of the sources for each archive of programs. Default: LICENSE and README.md.
	Extra []string
}

// target is an operating system with an architecture.
type target struct{ os, arch string }

func (t target) String() string { return t.os + "-" + t.arch }

var versionForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._+-]*$`)

func (o *Options) complete() ([]target, error) {
	if !versionForm.MatchString(o.Version) {
		return nil, fmt.Errorf("version %q: give letters, digits, dots and dashes, such as v0.1.0", o.Version)
	}
	if o.Images == nil {
		o.Images = imagetar.ProjectFor
	}
	if o.Extra == nil {
		o.Extra = []string{"LICENSE", "README.md"}
	}
	var targets []target
	for _, text := range o.Targets {
		system, arch, ok := strings.Cut(text, "/")
		if !ok || system == "" || arch == "" {
			return nil, fmt.Errorf("target %q: give OS/ARCH, such as linux/arm64", text)
		}
		targets = append(targets, target{system, arch})
	}
	return targets, nil
}

// Make builds everything beside the directory and moves it there when all is complete.
func Make(ctx context.Context, o Options) (err error) {
	targets, err := o.complete()
	if err != nil {
		return err
	}
	out, err := filepath.Abs(o.Out)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp(filepath.Dir(out), ".release-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	files := filepath.Join(work, "files")
	if err := os.Mkdir(files, 0o755); err != nil { //nolint:gosec // for everyone to read
		return err
	}
	bins := map[target]string{}
	for _, t := range targets {
		bins[t] = filepath.Join(work, t.String())
		if err := o.build(ctx, t, bins[t]); err != nil {
			return err
		}
		if err := o.pack(t, bins[t], files); err != nil {
			return err
		}
	}
	if err := o.images(targets, bins, files); err != nil {
		return err
	}
	if err := o.materials(targets, bins, files); err != nil {
		return err
	}
	if err := checksums(files); err != nil {
		return err
	}
	if err := os.RemoveAll(out); err != nil {
		return err
	}
	return os.Rename(files, out)
}

// build compiles the programs for a target. They are static: no cgo.
func (o *Options) build(ctx context.Context, t target, bin string) error {
	args := append([]string{"build", "-trimpath", "-buildvcs=false", "-ldflags", o.LDFlags, "-o", bin + string(filepath.Separator)}, o.Programs...)
	if err := os.MkdirAll(bin, 0o755); err != nil { //nolint:gosec // as in other directories of programs
		return err
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = o.Source
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+t.os, "GOARCH="+t.arch, "GOFLAGS=")
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %v for %s: %w\n%s", o.Programs, t, err, text)
	}
	return nil
}

// images writes each image with all of its architectures. Only Linux has images.
func (o *Options) images(targets []target, bins map[target]string, files string) error {
	byName := map[string][]*imagetar.Image{}
	for _, t := range targets {
		if t.os != "linux" {
			continue
		}
		images, err := o.Images(t.arch, bins[t])
		if err != nil {
			return err
		}
		for _, img := range images {
			byName[img.ShortName()] = append(byName[img.ShortName()], img)
		}
	}
	for name, images := range byName {
		file, err := os.Create(filepath.Join(files, strings.NewReplacer("/", "-", ":", "-").Replace(name)+".oci.tar"))
		if err != nil {
			return err
		}
		if err := errors.Join(imagetar.WriteMulti(file, images...), file.Close()); err != nil {
			return err
		}
	}
	return nil
}
