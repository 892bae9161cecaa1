// SPDX-License-Identifier: Apache-2.0

package binaries

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"go/version"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead-dev/fairlead/internal/gobuild"
	"github.com/fairlead-dev/fairlead/pkg/components"
	"github.com/fairlead-dev/fairlead/pkg/components/unpack"
	"github.com/fairlead-dev/fairlead/pkg/progress"
)

// ErrToolchain is returned if components have to be built and Go is missing or
// too old.
var ErrToolchain = errors.New("no usable Go toolchain")

// builder builds components into dir.
type builder struct {
	dir      string
	progress progress.Reporter
}

// ensure builds the named components that are not in dir yet.
func (b builder) ensure(ctx context.Context, names []string) error {
	if len(b.missing(names)) == 0 {
		return nil
	}
	goTool, err := toolchain(ctx)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(b.dir, 0o755); err != nil {
		return fmt.Errorf("creating the cache of built components: %w", err)
	}
	unlock, err := b.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	stale, _ := filepath.Glob(filepath.Join(b.dir, ".build-*")) // left by a killed build; the lock excludes other builds
	for _, dir := range stale {
		_ = os.RemoveAll(dir)
	}
	missing := b.missing(names) // another process may have built them meanwhile
	if len(missing) == 0 {
		return nil
	}
	build := make([]components.Component, len(missing))
	for i, name := range missing {
		if build[i], err = components.Get(name); err != nil {
			return err
		}
	}
	return progress.Step(b.progress, "Building "+describe(build)+" (once, about 3 minutes)", func() (string, error) {
		began := time.Now()
		err := b.build(ctx, goTool, build)
		return fmt.Sprintf("%.0fs", time.Since(began).Seconds()), err
	})
}

// describe names components: "etcd, kwok".
func describe(list []components.Component) string {
	names := make([]string, len(list))
	for i, c := range list {
		names[i] = c.Name
	}
	return strings.Join(names, ", ")
}

func (b builder) missing(names []string) []string {
	var missing []string
	for _, name := range names {
		if !executable(filepath.Join(b.dir, name)) {
			missing = append(missing, name)
		}
	}
	return missing
}

// build compiles components and moves them into place, each atomically, so that a partial binary is never taken for a complete
// one. One go command builds all: it links one program while it compiles another.
func (b builder) build(ctx context.Context, goTool string, list []components.Component) error {
	src, err := os.MkdirTemp(b.dir, ".build-")
	if err != nil {
		return fmt.Errorf("build %s: %w", describe(list), err)
	}
	defer func() { _ = os.RemoveAll(src) }()
	// The kernel sends the signal when this thread ends, not only when the
	// process does.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unpack.Into(src); err != nil {
		return err
	}
	out := filepath.Join(src, "out")
	args := append([]string{"build", "-v", "-o", out + string(filepath.Separator)}, components.Flags()...)
	for _, c := range list {
		args = append(args, "-ldflags", c.Package+"="+c.LDFlags)
	}
	for _, c := range list {
		args = append(args, c.Package)
	}
	cmd := exec.CommandContext(ctx, goTool, args...)
	cmd.Dir = src
	cmd.Env = append(os.Environ(), components.Environ()...)
	cmd.SysProcAttr = diesWithParent()
	// An interrupt from the terminal reaches the whole process group. SIGINT
	// lets the go command remove its work directory.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	output, err := gobuild.Run(cmd, b.report())
	if err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("build %s: %w", describe(list), context.Cause(ctx))
		}
		return b.failed(list, output, err)
	}
	for _, c := range list {
		if err := os.Rename(filepath.Join(out, c.Executable()), filepath.Join(b.dir, c.Name)); err != nil {
			return fmt.Errorf("build %s: %w", c.Name, err)
		}
	}
	return nil
}

// reportEvery is how often the progress of a build is shown.
const reportEvery = 10 * time.Second

func (b builder) report() func(gobuild.Progress) {
	next := time.Now().Add(reportEvery)
	return func(p gobuild.Progress) {
		if now := time.Now(); now.After(next) {
			next = now.Add(reportEvery)
			b.progress.Detail("%d packages compiled, %d modules downloaded", p.Compiled, p.Downloaded)
		}
	}
}

// failed writes the compiler's output to a file and summarizes it in one line.
func (b builder) failed(list []components.Component, output []byte, err error) error {
	log := filepath.Join(b.dir, "build.log")
	if werr := os.WriteFile(log, output, 0o644); werr != nil {
		log = "not written: " + werr.Error()
	}
	hint := "see there"
	switch {
	case bytes.Contains(output, []byte("no space left on device")):
		hint = "the disk is full: make room, or set GOCACHE, GOTMPDIR and XDG_CACHE_HOME to another disk"
	case bytes.Contains(output, []byte("dial tcp")), bytes.Contains(output, []byte("proxyconnect")):
		hint = "the Go module proxy was not reached: check the network and \"go env GOPROXY\", or give prebuilt programs with --component-dir"
	}
	return fmt.Errorf("build %s: %w: %s (output: %s)", describe(list), err, hint, log)
}

// lock makes concurrent builders wait for each other.
func (b builder) lock(ctx context.Context) (func(), error) {
	f, err := os.OpenFile(filepath.Join(b.dir, ".lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("locking the cache of built components: %w", err)
	}
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			_ = f.Close()
			return nil, fmt.Errorf("locking %s: %w", f.Name(), err)
		}
		b.progress.Detail("waiting for another fairlead that builds the same components")
		select {
		case <-ctx.Done():
			_ = f.Close()
			return nil, context.Cause(ctx)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// toolchain returns the go command if it is new enough for the pinned components.
func toolchain(ctx context.Context) (string, error) {
	advice := fmt.Sprintf("Kubernetes %s is built from source once: install Go %s or newer, or give prebuilt programs with --component-dir",
		components.KubernetesVersion(), components.GoVersion())
	path, err := exec.LookPath("go")
	if err != nil {
		return "", fmt.Errorf("%w: \"go\" is not in PATH: %s", ErrToolchain, advice)
	}
	cmd := exec.CommandContext(ctx, path, "env", "GOVERSION")
	cmd.Env = append(os.Environ(), "GOTOOLCHAIN=local")
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%w: \"go env GOVERSION\" failed (%w): %s", ErrToolchain, err, advice)
	}
	found := strings.TrimSpace(string(out))
	if version.Compare(found, "go"+components.GoVersion()) < 0 && !switchesToolchain(ctx, path) {
		return "", fmt.Errorf("%w: found %s: %s", ErrToolchain, found, advice)
	}
	return path, nil
}

// switchesToolchain reports whether the go command may download a newer
// toolchain by itself.
func switchesToolchain(ctx context.Context, path string) bool {
	out, err := exec.CommandContext(ctx, path, "env", "GOTOOLCHAIN").Output()
	return err == nil && strings.TrimSpace(string(out)) != "local"
}
