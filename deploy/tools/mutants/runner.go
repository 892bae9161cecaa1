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
	options  *options
	tmp      string
	stages   []*stage
	together string // the binary with most of the mutants
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
		out, err := r.test(ctx, dir, binary, 0, time.Hour, append(s.flags, "-test.coverprofile="+profile)...)
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
func (r *runner) test(ctx context.Context, dir, binary string, id int, limit time.Duration, flags ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	args := append([]string{"-c", `ulimit -d "$1" && shift && exec "$@"`, "sh", strconv.Itoa(maxMemory), binary,
		"-test.paniconexit0", "-test.failfast", "-test.timeout=0"}, flags...)
	cmd := exec.CommandContext(ctx, "sh", args...)
	cmd.Dir = r.dir
	cmd.Env = append(os.Environ(), "TMPDIR="+filepath.Join(dir, "t"), "PWD="+r.dir, mutantVariable+"="+strconv.Itoa(id))
	var out limitedBuffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	err := cmd.Wait()
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // usually it has ended
	if errors.Is(err, exec.ErrWaitDelay) && cmd.ProcessState.Success() {
		err = nil
	}
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return out.Bytes(), err
}

// choose returns the mutants that compile, as many as the sample has.
func (r *runner) choose(mutants []*mutant) []*mutant {
	var chosen []*mutant
	for _, m := range mutants {
		if r.options.sample > 0 && len(chosen) == r.options.sample {
			break
		}
		if r.compiles(m) {
			m.id = len(chosen) + 1
			chosen = append(chosen, m)
		}
	}
	return chosen
}

// run tests mutants, several at a time. done is never called by two at a time.
func (r *runner) run(ctx context.Context, mutants []*mutant, done func(*mutant, result)) error {
	chosen := r.choose(mutants)
	if err := r.buildTogether(ctx, chosen); err != nil {
		return err
	}
	var mu sync.Mutex
	next := 0
	take := func() *mutant {
		mu.Lock()
		defer mu.Unlock()
		if ctx.Err() != nil || next == len(chosen) {
			return nil
		}
		next++
		return chosen[next-1]
	}
	var workers sync.WaitGroup
	for range r.options.parallel {
		workers.Go(func() {
			for m := take(); m != nil; m = take() {
				res, err := r.one(ctx, m)
				mu.Lock()
				switch {
				case ctx.Err() != nil:
				case err != nil:
					fmt.Fprintf(os.Stderr, "mutants: left out: %v\n", err)
				default:
					done(m, res)
				}
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	return nil
}

// buildTogether compiles all mutants that can be in one binary.
func (r *runner) buildTogether(ctx context.Context, chosen []*mutant) error {
	files := r.schemata(chosen)
	if len(files) == 0 {
		return nil
	}
	var err error
	r.together, err = r.buildWith(ctx, filepath.Join(r.tmp, "a"), files)
	return err
}

// one tests a mutant. It returns an error if the mutant does not compile.
func (r *runner) one(ctx context.Context, m *mutant) (result, error) {
	dir := filepath.Join(r.tmp, strconv.Itoa(m.id))
	defer os.RemoveAll(dir)
	res := result{by: notReached}
	binary := ""
	for _, s := range r.stages {
		if !s.coverage.reaches(m) {
			continue
		}
		if m.together {
			binary = r.together
		}
		if err := os.MkdirAll(filepath.Join(dir, "t"), 0o755); err != nil { //nolint:gosec // a temporary directory
			return res, err
		}
		if binary == "" {
			var err error
			if binary, err = r.buildWith(ctx, dir, map[string][]byte{m.file: m.apply(r.text[m.file])}); err != nil {
				return res, err
			}
		}
		out, err := r.test(ctx, dir, binary, m.id, s.limit, s.flags...)
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

// buildWith compiles the tests with other texts of some files.
func (r *runner) buildWith(ctx context.Context, dir string, files map[string][]byte) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // a temporary directory
		return "", err
	}
	replace := map[string]string{}
	for name, text := range files {
		replace[name] = filepath.Join(dir, filepath.Base(name))
		if err := os.WriteFile(replace[name], text, 0o600); err != nil {
			return "", err
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
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
