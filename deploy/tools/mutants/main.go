// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/pflag"
)

// options are the flags.
type options struct {
	dir       string
	full      bool
	min       float64
	sample    int
	seed      uint64
	parallel  int
	survivors string
	verbose   bool
	minTime   time.Duration
}

func (o *options) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.dir, "dir", ".", "Directory of the module.")
	flags.BoolVar(&o.full, "full", false, "Run all tests on the mutants that survive those of -short.")
	flags.Float64Var(&o.min, "min", 85, "Share of mutants in percent that the tests must kill in each package.")
	flags.IntVar(&o.sample, "sample", 0, "Number of mutants to choose at random in each package (default: all).")
	flags.Uint64Var(&o.seed, "seed", 1, "Seed of --sample.")
	flags.IntVar(&o.parallel, "parallel", 2, "Number of mutants to test at a time.")
	flags.StringVar(&o.survivors, "survivors", filepath.Join("mutants", "survivors.txt"), "File with the survivors that are known, and why.")
	flags.BoolVarP(&o.verbose, "verbose", "v", false, "Print each mutant and what killed it.")
	flags.DurationVar(&o.minTime, "min-time", 10*time.Second, "Least time limit of the tests of a mutant.")
}

func (o *options) validate(args []string) error {
	switch {
	case len(args) == 0:
		return errors.New("no package: give patterns such as ./pkg/gateway/rules")
	case o.parallel < 1:
		return fmt.Errorf("--parallel is %d: give at least 1", o.parallel)
	case o.min < 0 || o.min > 100:
		return fmt.Errorf("--min is %g: give 0 to 100", o.min)
	case o.sample < 0:
		return fmt.Errorf("--sample is %d: give 0 for all, or more", o.sample)
	case o.minTime <= 0:
		return errors.New("--min-time must be more than 0")
	}
	return nil
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout io.Writer) error {
	o := &options{}
	flags := pflag.NewFlagSet("mutants", pflag.ContinueOnError)
	o.addFlags(flags)
	if err := flags.Parse(args); err != nil {
		return err
	}
	if err := o.validate(flags.Args()); err != nil {
		return err
	}
	known, err := readSurvivors(o.survivors)
	if err != nil {
		return err
	}
	packages, err := load(ctx, o.dir, flags.Args())
	if err != nil {
		return err
	}
	var failed []error
	for _, pkg := range packages {
		rep, err := testPackage(ctx, pkg, o, known, stdout)
		if err != nil {
			return errors.Join(append(failed, fmt.Errorf("%s: %w", pkg.name, err))...)
		}
		fmt.Fprint(stdout, rep.String())
		failed = append(failed, rep.verdict(o.min)...)
		if ctx.Err() != nil {
			failed = append(failed, errors.New("interrupted"))
			break
		}
	}
	return errors.Join(failed...)
}

// testPackage runs the tests on all mutants of a package, or on a sample.
func testPackage(ctx context.Context, pkg *source, o *options, known *survivors, stdout io.Writer) (*report, error) {
	all := pkg.mutants()
	chosen := all
	if o.sample > 0 {
		order := rand.New(rand.NewPCG(o.seed, o.seed)).Perm(len(all)) //nolint:gosec // a sample, no secret
		chosen = nil
		for _, i := range order {
			chosen = append(chosen, all[i])
		}
	}
	r, err := newRunner(ctx, pkg, o)
	if err != nil {
		return nil, err
	}
	defer r.close()
	rep := &report{pkg: pkg.name, known: known}
	err = r.run(ctx, chosen, func(m *mutant, res result) {
		rep.add(m, res)
		if o.verbose {
			fmt.Fprintf(stdout, "%s: %s:%d %s\n%s", res, filepath.Join(pkg.name, filepath.Base(m.file)), m.line, m.function, m.diff())
		}
	})
	rep.stale = known.missing(pkg.name, all)
	if ctx.Err() != nil {
		err = nil // the report has what there is
	}
	return rep, err
}
