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
	"sigs.k8s.io/yaml"
)

// Options say what to release.
type Options struct {
	// Source is the directory of the module, Out that of the release.
	Source, Out string
	// Version is in the names of files.
	Version string
	// Programs are packages of commands for Linux, and Clients those that other systems get.
	Programs, Clients []string
	// Targets are operating systems and architectures: linux/amd64.
	Targets []string
	// LDFlags are for Go's linker.
	LDFlags string
	// Images makes the images of one architecture from a directory of programs. Default: those of this project.
	Images func(architecture, bin string) ([]*imagetar.Image, error)
	// ImageTag is the version in the names of the images; Chart, if set, the file below Source that has it too.
	ImageTag, Chart string
	// Fresh compiles with an empty build cache: with -trimpath, Go takes what it has compiled from the same sources in another directory.
	Fresh bool
	// Extra are further files and directories of the sources for each archive of programs, with their paths there.
	Extra map[string]string
}

// target is an operating system with an architecture.
type target struct{ os, arch string }

func (t target) String() string { return t.os + "-" + t.arch }

// releaseForm is the version of a release, unlike that of a commit between two releases.
var releaseForm = regexp.MustCompile(`^v\d+\.\d+\.\d+(-(alpha|beta|rc)[.\d]*)?$`)

var versionForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._+-]*$`)

func (o *Options) complete() ([]target, error) {
	if !versionForm.MatchString(o.Version) {
		return nil, fmt.Errorf("version %q: give letters, digits, dots and dashes, such as v0.1.0", o.Version)
	}
	if o.Images == nil {
		o.Images = imagetar.ProjectFor
	}
	if err := o.oneVersion(); err != nil {
		return nil, err
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

// oneVersion refuses a release whose images or chart are of another version. A build between two releases has those of the last one.
func (o *Options) oneVersion() error {
	if !releaseForm.MatchString(o.Version) {
		return nil
	}
	if o.ImageTag != o.Version {
		return fmt.Errorf("version %s: the images are of version %s: set ImageTag in pkg/bundle/v1alpha1/constants.go and run make update, see docs/release.md", o.Version, o.ImageTag)
	}
	if o.Chart == "" {
		return nil
	}
	data, err := os.ReadFile(filepath.Join(o.Source, o.Chart))
	if err != nil {
		return err
	}
	var chart struct{ Version, AppVersion string }
	if err := yaml.Unmarshal(data, &chart); err != nil {
		return fmt.Errorf("%s: %w", o.Chart, err)
	}
	if want := strings.TrimPrefix(o.Version, "v"); chart.Version != want || chart.AppVersion != want {
		return fmt.Errorf("version %s: the chart has version %q and appVersion %q: set both to %s in %s", o.Version, chart.Version, chart.AppVersion, want, o.Chart)
	}
	return nil
}

// Make builds everything next to the directory and moves it there when all is complete.
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
		if err := o.build(ctx, t, bins[t], filepath.Join(work, "cache")); err != nil {
			return err
		}
		if err := o.pack(t, bins[t], files); err != nil {
			return err
		}
	}
	images, err := o.images(targets, bins, files)
	if err != nil {
		return err
	}
	if err := o.materials(targets, bins, images, files); err != nil {
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

// settings of Go that change what it compiles: its defaults, whatever the environment says.
var settings = []string{
	"CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off", "GOEXPERIMENT=", "GOFIPS140=off", "GODEBUG=",
	"GOAMD64=v1", "GOARM64=v8.0", "GOARM=7", "GO386=sse2", "GOPPC64=power8", "GORISCV64=rva20u64",
}

// build compiles the programs for a target. They are static: no cgo.
func (o *Options) build(ctx context.Context, t target, bin, cache string) error {
	programs := o.Programs
	if t.os != "linux" {
		programs = o.Clients
	}
	args := append([]string{"build", "-trimpath", "-buildvcs=false", "-ldflags", o.LDFlags, "-o", bin + string(filepath.Separator)}, programs...)
	if err := os.MkdirAll(bin, 0o755); err != nil { //nolint:gosec // as in other directories of programs
		return err
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = o.Source
	cmd.Env = append(append(os.Environ(), settings...), "GOOS="+t.os, "GOARCH="+t.arch)
	if o.Fresh {
		cmd.Env = append(cmd.Env, "GOCACHE="+cache)
	}
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %v for %s: %w\n%s", programs, t, err, text)
	}
	return nil
}

// images writes each image with all of its architectures, and returns them by file. Only Linux has images.
func (o *Options) images(targets []target, bins map[target]string, files string) (map[string][]*imagetar.Image, error) {
	byFile := map[string][]*imagetar.Image{}
	for _, t := range targets {
		if t.os != "linux" {
			continue
		}
		images, err := o.Images(t.arch, bins[t])
		if err != nil {
			return nil, err
		}
		for _, img := range images {
			file := strings.NewReplacer("/", "-", ":", "-").Replace(img.ShortName()) + ".oci.tar"
			byFile[file] = append(byFile[file], img)
		}
	}
	for name, images := range byFile {
		file, err := os.Create(filepath.Join(files, name))
		if err != nil {
			return nil, err
		}
		if err := errors.Join(imagetar.WriteMulti(file, images...), file.Close()); err != nil {
			return nil, err
		}
	}
	return byFile, nil
}
