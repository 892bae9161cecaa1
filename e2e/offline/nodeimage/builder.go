// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/components"
	"github.com/fairlead-dev/fairlead/pkg/nodeimage"
	"github.com/fairlead-dev/fairlead/pkg/progress"

	"github.com/fairlead-dev/fairlead/e2e/offline/debian"
)

// builder builds the stages that Docker does not have yet.
type builder struct {
	binDir   string // this project's programs
	mirror   string // Debian mirror
	force    bool
	progress progress.Reporter

	docker  docker
	workDir string // for what is only needed while building
	kindDir string // kind's module
}

// run builds the node image if its inputs have changed.
func (b *builder) run(ctx context.Context) error {
	began := time.Now()
	if err := b.prepare(ctx); err != nil {
		return err
	}
	unlock, err := b.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	stages, err := b.stages(ctx)
	if err != nil {
		return err
	}
	built, err := b.build(ctx, stages)
	if err != nil {
		return err
	}
	if err := b.balancer(ctx, func(ctx context.Context) (string, []byte, error) {
		return b.balancerPrograms(ctx, nodeimage.Name())
	}); err != nil {
		return err
	}
	if !built {
		fmt.Printf("%s is up to date.\n", nodeimage.Name())
		return nil
	}
	b.prune(ctx, stages)
	fmt.Printf("%s is built (%.0fs).\n", nodeimage.Name(), time.Since(began).Seconds())
	return nil
}

// prepare checks the requirements before anything is built: it is better to fail now than after
// minutes.
func (b *builder) prepare(ctx context.Context) error {
	if err := b.docker.check(ctx); err != nil {
		return err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return fmt.Errorf("no cache directory: set XDG_CACHE_HOME to a directory of yours: %w", err)
	}
	b.workDir = filepath.Join(cache, "fairlead", "nodeimage")
	if err := os.MkdirAll(b.workDir, 0o755); err != nil {
		return err
	}
	if b.mirror == "" {
		if b.mirror, err = aptMirror(ctx); err != nil {
			return err
		}
	}
	out, err := goTool(ctx, ".", "list", "-m", "-f", "{{.Dir}}", nodeimage.KindModule)
	if err != nil {
		return fmt.Errorf("kind's module: %w", err)
	}
	b.kindDir = strings.TrimSpace(out)
	if b.kindDir == "" {
		return errors.New("kind's module is not in the module cache")
	}
	return nil
}

// goTool runs the go command in a module of this repository and returns its output.
func goTool(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), components.Environ()...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) } // it removes its work directory
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.Output()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return string(out), nil
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case errors.As(err, &exit):
		return "", fmt.Errorf("go %s: %w:\n%s", args[0], err, debian.LastLines(string(exit.Stderr), 10))
	}
	return "", err
}

// lock makes builders of one user wait for each other, and removes what a killed one left
// behind.
func (b *builder) lock(ctx context.Context) (func(), error) {
	f, err := os.OpenFile(filepath.Join(b.workDir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for told := false; ; told = true {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			break
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return nil, errors.Join(fmt.Errorf("locking %s: %w", f.Name(), err), f.Close())
		}
		if !told {
			fmt.Fprintln(os.Stderr, "Waiting for another build of the node image ...")
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), f.Close())
		case <-time.After(200 * time.Millisecond):
		}
	}
	leftovers, _ := filepath.Glob(filepath.Join(b.workDir, "work-*"))
	for _, dir := range leftovers {
		if err := removeTree(dir); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	b.docker.removeBuilders(ctx, b.workDir)
	return func() { _ = f.Close() }, nil
}

// removeTree removes a directory in which debootstrap may have mounted /proc.
func removeTree(dir string) error {
	if err := debian.UnmountBelow(dir); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}

// build makes the stages that are missing, and reports whether there were any.
func (b *builder) build(ctx context.Context, stages []stage) (built bool, err error) {
	for i, s := range stages {
		if !b.force && b.docker.has(ctx, s.tag) {
			continue
		}
		below := ""
		if i > 0 {
			below = stages[i-1].tag
		}
		if err := s.build(ctx, below, s.tag); err != nil {
			return built, b.explain(err)
		}
		built = true
	}
	final := stages[len(stages)-1].tag
	id, err := b.docker.id(ctx, final)
	if err != nil {
		return built, err
	}
	if named, _ := b.docker.id(ctx, nodeimage.Name()); named == id {
		return built, nil
	}
	_, err = b.docker.run(ctx, nil, "tag", final, nodeimage.Name())
	return true, err
}

// explain adds the remedy to errors whose cause is visible only in the output of a
// program.
func (b *builder) explain(err error) error {
	if strings.Contains(err.Error(), "no space left on device") {
		return fmt.Errorf("%w\nthe disk is full: make room below %s and in Docker's data directory, then run it again; finished stages are kept", err, b.workDir)
	}
	return err
}

// prune removes stages of earlier inputs: each is hundreds of megabytes.
func (b *builder) prune(ctx context.Context, stages []stage) {
	keep := map[string]bool{nodeimage.Name(): true}
	for _, s := range stages {
		keep[s.tag] = true
	}
	tags, err := b.docker.run(ctx, nil, "image", "ls", "--format", "{{.Repository}}:{{.Tag}}", stageRepository)
	if err != nil {
		return
	}
	for tag := range strings.FieldsSeq(tags) {
		if !keep[tag] {
			_, _ = b.docker.run(ctx, nil, "rmi", tag) // one that a container uses stays
		}
	}
}
