// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"
)

// options are the flags.
type options struct {
	rounds       int
	dir          string
	packages     []string
	racePackages []string
	layer        string
	race         string
	load         int
	parallel     int
	exec         string
	timeout      time.Duration
	limit        time.Duration
	seed         int64
	out          string
}

func (o *options) addFlags(flags *pflag.FlagSet) {
	flags.IntVarP(&o.rounds, "n", "n", 20, "Number of rounds.")
	flags.StringVar(&o.dir, "dir", ".", "Directory of the module.")
	flags.StringSliceVar(&o.packages, "packages", nil, "Patterns of packages (default: all but those below e2e).")
	flags.StringSliceVar(&o.racePackages, "race-packages", nil, "Patterns of the packages of rounds with the race detector (default: those of --packages).")
	flags.StringVar(&o.layer, "layer", layerMain, "Tests to run: unit (as make test-unit), main (as make test), or all.")
	flags.StringVar(&o.race, "race", raceAuto, "Rounds with the race detector: auto (every second one if there is a C compiler), never, or only.")
	flags.IntVar(&o.load, "load", 8, "Number of busy loops in two of four rounds.")
	flags.IntVar(&o.parallel, "p", 0, "Number of packages to test at a time (default: go test's).")
	flags.StringVar(&o.exec, "exec", "", "Program that runs the test binaries, as go test -exec.")
	flags.DurationVar(&o.timeout, "timeout", 15*time.Minute, "Time limit for the tests of one package.")
	flags.DurationVar(&o.limit, "limit", 8*time.Hour, "Time limit for all rounds. The report then has the rounds up to it.")
	flags.Int64Var(&o.seed, "seed", 0, "Seed of the first round; the next rounds add 1 (default: chosen at random, and printed).")
	flags.StringVar(&o.out, "out", "", "File for the report.")
}

func (o *options) validate() error {
	switch {
	case o.rounds < 1:
		return fmt.Errorf("--n is %d: give at least 1", o.rounds)
	case o.load < 0 || o.load > 64:
		return fmt.Errorf("--load is %d: give 0 to 64", o.load)
	case o.timeout <= 0 || o.limit <= 0:
		return errors.New("--timeout and --limit must be more than 0")
	case !slices.Contains([]string{layerUnit, layerMain, layerAll}, o.layer):
		return fmt.Errorf("--layer is %q: give unit, main, or all", o.layer)
	case !slices.Contains([]string{raceAuto, raceNever, raceOnly}, o.race):
		return fmt.Errorf("--race is %q: give auto, never, or only", o.race)
	}
	return nil
}

func main() {
	busyIfAsked()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	failed, err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "flakes:", err)
	}
	if err != nil || failed {
		os.Exit(1)
	}
}

// run reports whether a test failed. It returns an error if it could not run all rounds for another reason than --limit.
func run(ctx context.Context, args []string, stdout io.Writer) (failed bool, err error) {
	o := &options{}
	flags := pflag.NewFlagSet("flakes", pflag.ContinueOnError)
	o.addFlags(flags)
	if err := flags.Parse(args); err != nil {
		return false, err
	}
	if len(flags.Args()) > 0 {
		return false, fmt.Errorf("unknown argument %q: give packages with --packages", flags.Arg(0))
	}
	if err := o.validate(); err != nil {
		return false, err
	}
	if o.seed == 0 {
		o.seed = rand.Int64N(1 << 31) //nolint:gosec // a seed, no secret
	}
	plan, err := makePlan(ctx, o)
	if err != nil {
		return false, err
	}
	limited, cancel := context.WithTimeout(ctx, o.limit)
	defer cancel()
	r := &report{rounds: o.rounds}
	err = plan.run(limited, r, func(text string) error {
		fmt.Fprint(stdout, text)
		return r.write(o.out)
	})
	fmt.Fprintln(stdout, r.summary())
	if err == nil && ctx.Err() != nil {
		err = errors.New("interrupted")
	}
	return len(r.failures) > 0, errors.Join(err, r.write(o.out))
}

// makePlan finds the packages and whether there is a C compiler.
func makePlan(ctx context.Context, o *options) (*plan, error) {
	p := &plan{options: o}
	var err error
	if p.packages, err = withTests(ctx, o.dir, o.packages); err != nil {
		return nil, err
	}
	p.racePackages = p.packages
	if len(o.racePackages) > 0 {
		if p.racePackages, err = withTests(ctx, o.dir, o.racePackages); err != nil {
			return nil, err
		}
	}
	if o.race != raceNever {
		p.cc, err = compiler(ctx)
		if err != nil && o.race == raceOnly {
			return nil, fmt.Errorf("--race=only: %w: install a C compiler such as gcc", err)
		}
	}
	return p, nil
}

// withTests returns the import paths of the packages that have tests.
func withTests(ctx context.Context, dir string, patterns []string) ([]string, error) {
	all := len(patterns) == 0
	if all {
		patterns = []string{"./..."}
	}
	// -e: a package that does not compile is one of the failures to report.
	args := append([]string{"list", "-e", "-f", `{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}`}, patterns...)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w", strings.Join(args, " "), err)
	}
	found := slices.DeleteFunc(strings.Fields(string(out)), func(pkg string) bool {
		return all && (strings.Contains(pkg, "/e2e/") || strings.HasSuffix(pkg, "/e2e"))
	})
	if len(found) == 0 {
		return nil, fmt.Errorf("no package with tests in %s: check --dir and --packages", dir)
	}
	return found, nil
}

// compiler returns the path of the C compiler that Go uses.
func compiler(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "CC").Output()
	if err != nil {
		return "", fmt.Errorf("go env CC: %w", err)
	}
	name, _, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	return exec.LookPath(name)
}

// writeFile replaces a file and makes its directory.
func writeFile(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // a report that anybody may read
		return err
	}
	return os.WriteFile(path, []byte(text), 0o644) //nolint:gosec // the same
}
