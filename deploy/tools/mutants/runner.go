// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// timeFactor is how much longer than without a mutant the tests may take.
const timeFactor = 3

// maxMemory is how much a test binary may allocate, in KiB: a mutant may allocate without an end.
const maxMemory = 6 << 20

// result is what became of a mutant.
type result struct {
	killed bool
	by     string // a test, the time limit, or why it survives
}

const (
	byTime     = "the time limit"
	byExit     = "the end of the program"
	notReached = "no test reaches it"
	noneFails  = "no test fails"
)

func (r result) String() string {
	if r.killed {
		return "killed by " + r.by
	}
	return "survives, " + r.by
}

// stage is one way to run the tests: with -short or without.
type stage struct {
	flags    []string
	limit    time.Duration
	coverage *coverage
}

// runner runs the tests of a package on its mutants.
type runner struct {
	*source
	options *options
	tmp     string
	stages  []*stage
}

// newRunner runs the tests on the unchanged package, which have to pass, for their time and coverage.
func newRunner(ctx context.Context, pkg *source, o *options) (*runner, error) {
	tmp, err := os.MkdirTemp("", "mu") // short: tests make sockets below
	if err != nil {
		return nil, err
	}
	r := &runner{source: pkg, options: o, tmp: tmp, stages: []*stage{{flags: []string{"-test.short"}}}}
	if o.full {
		r.stages = append(r.stages, &stage{})
	}
	if err := r.baseline(ctx); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

func (r *runner) close() { os.RemoveAll(r.tmp) }

func (r *runner) baseline(ctx context.Context) error {
	dir := filepath.Join(r.tmp, "0")
	binary, err := r.build(ctx, dir, "-cover", "-coverpkg="+r.PkgPath)
	if err != nil {
		return err
	}
	if _, err := os.Stat(binary); err != nil {
		return errors.New("it has no tests")
	}
	for _, s := range r.stages {
		profile := filepath.Join(dir, "profile")
		start := time.Now()
		out, err := r.test(ctx, dir, binary, time.Hour, append(s.flags, "-test.coverprofile="+profile)...)
		if err != nil {
			return fmt.Errorf("the tests fail without a mutant: %w\n%s", err, out)
		}
		s.limit = max(r.options.minTime, timeFactor*time.Since(start))
		if s.coverage, err = readCoverage(profile); err != nil {
			return err
		}
	}
	return nil
}

// build compiles the tests of the package.
func (r *runner) build(ctx context.Context, dir string, flags ...string) (binary string, err error) {
	if err := os.MkdirAll(filepath.Join(dir, "t"), 0o755); err != nil { //nolint:gosec // a temporary directory
		return "", err
	}
	binary = filepath.Join(dir, "test")
	// -s -w: as `go test` links a binary that it removes afterwards.
	args := append([]string{"test", "-c", "-vet=off", "-ldflags=-s -w", "-o", binary}, flags...)
	cmd := exec.CommandContext(ctx, "go", append(args, r.PkgPath)...)
	cmd.Dir = r.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", strings.Join(cmd.Args[1:], " "), err, out)
	}
	return binary, nil
}

// test runs a test binary as `go test` does. It ends the processes that the tests leave behind.
func (r *runner) test(ctx context.Context, dir, binary string, limit time.Duration, flags ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	args := append([]string{"-c", `ulimit -d "$1" && shift && exec "$@"`, "sh", strconv.Itoa(maxMemory), binary,
		"-test.paniconexit0", "-test.failfast", "-test.timeout=0"}, flags...)
	cmd := exec.CommandContext(ctx, "sh", args...)
	cmd.Dir = r.dir
	cmd.Env = append(os.Environ(), "TMPDIR="+filepath.Join(dir, "t"), "PWD="+r.dir)
	var out limitedBuffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	err := cmd.Wait()
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // most of the time nobody is left
	if errors.Is(err, exec.ErrWaitDelay) && cmd.ProcessState.Success() {
		err = nil
	}
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return out.Bytes(), err
}

// run tests mutants, several at a time, until there are as many as the sample has. done is never called by two at a time.
func (r *runner) run(ctx context.Context, mutants []*mutant, done func(*mutant, result)) {
	var mu sync.Mutex
	counted, next := 0, 0
	// take returns the next mutant that compiles.
	take := func() (*mutant, string) {
		mu.Lock()
		defer mu.Unlock()
		for ctx.Err() == nil && next < len(mutants) && (r.options.sample == 0 || counted < r.options.sample) {
			m := mutants[next]
			next++
			if r.compiles(m) {
				counted++
				return m, filepath.Join(r.tmp, strconv.Itoa(next))
			}
		}
		return nil, ""
	}
	var workers sync.WaitGroup
	for range r.options.parallel {
		workers.Go(func() {
			for m, dir := take(); m != nil; m, dir = take() {
				res, err := r.one(ctx, m, dir)
				mu.Lock()
				switch {
				case ctx.Err() != nil:
				case err != nil:
					counted--
					fmt.Fprintf(os.Stderr, "mutants: left out: %v\n", err)
				default:
					done(m, res)
				}
				mu.Unlock()
			}
		})
	}
	workers.Wait()
}

// one tests a mutant. It returns an error if the mutant does not compile.
func (r *runner) one(ctx context.Context, m *mutant, dir string) (result, error) {
	defer os.RemoveAll(dir)
	res := result{by: notReached}
	binary := ""
	for _, s := range r.stages {
		if !s.coverage.reaches(m) {
			continue
		}
		if binary == "" {
			var err error
			if binary, err = r.buildMutant(ctx, m, dir); err != nil {
				return res, err
			}
		}
		out, err := r.test(ctx, dir, binary, s.limit, s.flags...)
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			return result{killed: true, by: byTime}, nil
		case err != nil:
			return result{killed: true, by: killer(out)}, nil
		}
		res.by = noneFails
	}
	return res, nil
}

func (r *runner) buildMutant(ctx context.Context, m *mutant, dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // a temporary directory
		return "", err
	}
	changed := filepath.Join(dir, "mutant.go")
	if err := os.WriteFile(changed, m.apply(r.text[m.file]), 0o600); err != nil {
		return "", err
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{m.file: changed}})
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, overlay, 0o600); err != nil {
		return "", err
	}
	return r.build(ctx, dir, "-overlay="+file)
}

var failedTest = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

// killer returns the innermost test that failed first.
func killer(out []byte) string {
	name := ""
	for _, found := range failedTest.FindAllSubmatch(out, -1) {
		if name != "" && !strings.HasPrefix(string(found[1]), name+"/") {
			break
		}
		name = string(found[1])
	}
	if name == "" {
		return byExit
	}
	return name
}

// limitedBuffer keeps the first MiB.
type limitedBuffer struct{ bytes.Buffer }

func (b *limitedBuffer) Write(p []byte) (int, error) {
	if room := 1<<20 - b.Len(); room > 0 {
		b.Buffer.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}
