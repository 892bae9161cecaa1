// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// The layers of tests, and the environment variable that tells tests about theirs; see internal/testutil.
const (
	layerUnit = "unit"
	layerMain = "main"
	layerAll  = "all"

	layerVariable = "FAIRLEAD_TEST_LAYER"
)

// The values of --race.
const (
	raceAuto  = "auto"
	raceNever = "never"
	raceOnly  = "only"
)

// stopTime is how long go test has to end after an interrupt before it is killed.
const stopTime = 20 * time.Second

// conditions are what a round runs under.
type conditions struct {
	round  int // from 1
	seed   int64
	race   bool
	load   int
	oneCPU bool
}

// conditionsOf alternates: race in every second round, load in two of four, one processor in every third.
func conditionsOf(round int, o *options, canRace bool) conditions {
	c := conditions{round: round, seed: o.seed + int64(round-1), oneCPU: round%3 == 0}
	c.race = canRace && (o.race == raceOnly || o.race == raceAuto && round%2 == 0)
	if (round-1)/2%2 == 1 {
		c.load = o.load
	}
	return c
}

func (c conditions) String() string {
	parts := []string{fmt.Sprintf("seed %d", c.seed)}
	if c.race {
		parts = append(parts, "-race")
	}
	if c.load > 0 {
		parts = append(parts, fmt.Sprintf("beside %d busy loops", c.load))
	}
	if c.oneCPU {
		parts = append(parts, "GOMAXPROCS=1")
	}
	return strings.Join(parts, ", ")
}

// flags are the arguments of go test for these conditions.
func (c conditions) flags(o *options) []string {
	flags := []string{"-count=1", "-shuffle=" + strconv.FormatInt(c.seed, 10)}
	if c.race {
		flags = append(flags, "-race")
	}
	if c.oneCPU {
		flags = append(flags, "-cpu=1") // what go test itself and other programs use stays
	}
	if o.layer == layerUnit {
		flags = append(flags, "-short")
	}
	return flags
}

// environ are the variables of go test for these conditions.
func (c conditions) environ(o *options) []string {
	var env []string
	if c.race {
		env = append(env, "CGO_ENABLED=1")
	}
	if o.layer == layerMain {
		env = append(env, layerVariable+"="+layerMain)
	}
	return env
}

// plan is what to run.
type plan struct {
	*options
	packages     []string
	racePackages []string
	cc           string // empty if there is no C compiler
}

// run runs the rounds and hands over a text about each. It ends without an error when the time limit is reached.
func (p *plan) run(ctx context.Context, r *report, progress func(text string) error) error {
	for i := 1; i <= p.rounds && ctx.Err() == nil; i++ {
		c := conditionsOf(i, p.options, p.cc != "")
		start := time.Now()
		res, err := p.round(ctx, c)
		if err != nil {
			return fmt.Errorf("round %d: %w", i, err)
		}
		text := r.add(c, res, p.flags(c), time.Since(start), ctx.Err() != nil)
		if err := progress(text); err != nil {
			return err
		}
	}
	return nil
}

func (p *plan) flags(c conditions) string {
	return strings.Join(slices.Concat(c.environ(p.options), []string{"go", "test"}, c.flags(p.options)), " ")
}

// round runs the tests once. If ctx ends, it returns what failed until then.
func (p *plan) round(ctx context.Context, c conditions) (*result, error) {
	stopLoad, err := startLoad(ctx, c.load, p.limit)
	if err != nil {
		return nil, err
	}
	defer stopLoad()
	args := append([]string{"test", "-json", "-vet=off", "-timeout=" + p.timeout.String()}, c.flags(p.options)...)
	if p.parallel > 0 {
		args = append(args, "-p="+strconv.Itoa(p.parallel))
	}
	if p.exec != "" {
		args = append(args, "-exec="+p.exec)
	}
	pkgs := p.packages
	if c.race {
		pkgs = p.racePackages
	}
	cmd := exec.CommandContext(ctx, "go", append(args, pkgs...)...)
	cmd.Dir = p.dir
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, layerVariable+"=") }), c.environ(p.options)...)
	events := newCollector()
	var stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = events, &stderr
	// A process group of its own: Ctrl-C reaches the tests once, through Cancel, and what they leave behind ends with them.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = stopTime
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	err = cmd.Wait()
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // of the group; usually it has ended
	res := events.result(ctx.Err() != nil)
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil || err == nil || errors.Is(err, exec.ErrWaitDelay):
		return res, nil
	case errors.As(err, &exit) && len(res.failures) > 0:
		return res, nil
	}
	return nil, fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, stderr.String())
}
