// SPDX-License-Identifier: Apache-2.0

// Command chaos runs the tests of the faults in faults.yaml and prints a table of results: whether each fault met its
// bar, how long its tests took, and the worst unavailability that they measured. Run it by make:
//
//	make chaos                                   # all faults, in an order that -seed repeats
//	make chaos CHAOS_FLAGS='-only 1,2 -seed 7'
//	make chaos PROVIDER=kind                     # those that real nodes can have, on kind
//	make soak-faults SOAK_TIME=4h                # again and again
//
// The tests themselves fail if something is left: connections, goroutines, memory. Start at [run]; kind.go is about kind.
package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/pkg/interrupt"
)

//go:embed faults.yaml
var faultsFile []byte

// fault is an entry of faults.yaml.
type fault struct {
	ID    int    `json:"id"`
	Fault string `json:"fault"`
	Bar   string `json:"bar"`
	Slice bool   `json:"slice"`
	// Unavailable is the longest time of unavailability that meets the bar, if tests measure that.
	Unavailable string `json:"unavailable"`
	// Measured says that tests log what they measure. That they no longer do is an error, and no dash in the table.
	Measured bool       `json:"measured"`
	Tests    []testCase `json:"tests"`
	// Kind are the tests on a cluster of kind, all of which log the unavailability.
	Kind []testCase `json:"kind"`
	Gap  string     `json:"gap"`
}

// testCase names tests of a package.
type testCase struct {
	Dir string `json:"dir"`
	// Run has beginnings of the names of tests, with "|" between them and, after each "/", those of subtests.
	Run string `json:"run"`
}

// String is how docs/chaos.md names the tests.
func (c testCase) String() string {
	return fmt.Sprintf("`%s`: `%s`", c.Dir, strings.ReplaceAll(c.Run, "|", `\|`))
}

// pattern is for "go test -run", which matches each part with one level of subtests.
func (c testCase) pattern() string {
	parts := strings.Split(c.Run, "/")
	for i, p := range parts {
		parts[i] = "^(" + p + ")"
	}
	return strings.Join(parts, "/")
}

type options struct {
	only  string
	slice bool
	seed  uint64
	keep  time.Duration
	kind  bool
}

func main() {
	o := options{kind: os.Getenv("PROVIDER") == "kind"}
	flag.StringVar(&o.only, "only", "", "numbers of faults, separated by commas (default: all)")
	flag.BoolVar(&o.slice, "slice", false, "only a short selection of faults")
	flag.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano()), "order of the faults")
	flag.DurationVar(&o.keep, "for", 0, "repeat until this time is over or a fault misses its bar")
	flag.BoolVar(&o.kind, "kind", o.kind, "the tests on a cluster of kind (default: if PROVIDER is kind)")
	flag.Parse()
	ctx, stop := interrupt.Context(context.Background())
	defer stop()
	if err := run(ctx, os.Stdout, o); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

var errMissed = errors.New("missed their bars")

func run(ctx context.Context, out io.Writer, o options) error {
	all, err := load()
	if err != nil {
		return err
	}
	faults, err := choose(all, o)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%d faults, -seed %d\n\n| fault | result | took | worst unavailability |\n|---|---|--:|--:|\n", len(faults), o.seed)
	order := rand.New(rand.NewPCG(o.seed, 0)) //nolint:gosec // to be repeated
	for begin := time.Now(); ; {
		order.Shuffle(len(faults), func(i, j int) { faults[i], faults[j] = faults[j], faults[i] })
		try := func(f fault) bool { return f.try(ctx, out) }
		if o.kind {
			runs := onKind(ctx, faults, o.seed)
			try = func(f fault) bool { return runs.try(f, out) }
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
		var missed []string
		for _, f := range faults {
			if !try(f) {
				missed = append(missed, strconv.Itoa(f.ID))
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
		if len(missed) > 0 {
			return fmt.Errorf("faults %s %w: run make chaos%s CHAOS_FLAGS='-only %[1]s -seed %[4]d' again", strings.Join(missed, ","), errMissed, o.provider(), o.seed)
		}
		if time.Since(begin) >= o.keep {
			return nil
		}
	}
}

// provider is the part of the command line of make that repeats a run.
func (o options) provider() string {
	if o.kind {
		return " PROVIDER=kind"
	}
	return ""
}

func load() (faults []fault, err error) {
	if err := yaml.UnmarshalStrict(faultsFile, &faults); err != nil {
		return nil, fmt.Errorf("faults.yaml: %w", err)
	}
	return faults, nil
}

// choose returns the faults to run.
func choose(all []fault, o options) (chosen []fault, err error) {
	var numbers []int
	for text := range strings.SplitSeq(o.only, ",") {
		if text == "" {
			continue
		}
		n, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil || !slices.ContainsFunc(all, func(f fault) bool { return f.ID == n }) {
			return nil, fmt.Errorf("-only %s: there is no fault %q: give numbers from 1 to %d", o.only, text, len(all))
		}
		numbers = append(numbers, n)
	}
	for _, f := range all {
		if (len(numbers) == 0 || slices.Contains(numbers, f.ID)) && (!o.slice || f.Slice) && len(f.tests(o.kind)) > 0 {
			chosen = append(chosen, f)
		}
	}
	return chosen, nil
}

// tests are those of a fault, on kind or not.
func (f fault) tests(kind bool) []testCase {
	if kind {
		return f.Kind
	}
	return f.Tests
}

// unavailable is what tests log.
var unavailable = regexp.MustCompile(`unavailable for at most ([0-9][0-9.a-zµ]*)`)

// try runs the tests of a fault and prints its row.
func (f fault) try(ctx context.Context, out io.Writer) bool {
	begin, worst, result, said := time.Now(), time.Duration(0), "met", ""
	for _, c := range f.Tests {
		cmd := exec.CommandContext(ctx, "go", "test", "-count", "1", "-timeout", "30m", "-v", "-run", c.pattern(), "./"+c.Dir)
		text, err := cmd.CombinedOutput()
		worst = max(worst, longest(text))
		if r := c.judge(text, err); r != "met" {
			result, said = r, said+fmt.Sprintf("\n%s: %v\n%s", strings.Join(cmd.Args, " "), err, text)
		}
	}
	return f.report(out, result, said, time.Since(begin), worst)
}

// report prints the row of a fault and, for one that missed its bar, what its tests said.
func (f fault) report(out io.Writer, result, said string, took, worst time.Duration) bool {
	measured := "–"
	if worst > 0 {
		measured = worst.String()
	}
	if why := f.tooLong(worst); result == "met" && why != "" {
		result, said = missed, fmt.Sprintf("\nfault %d: %s", f.ID, why)
	}
	fmt.Fprintf(out, "| %d %s | %s | %s | %s |\n", f.ID, f.Fault, result, took.Round(time.Second), measured)
	if said != "" {
		fmt.Fprintln(os.Stderr, said)
	}
	return result == "met"
}

// tooLong says why an unavailability does not meet the bar, "" if it does.
func (f fault) tooLong(worst time.Duration) string {
	limit, err := time.ParseDuration(f.Unavailable)
	switch {
	case worst == 0 && (f.Measured || f.Unavailable != ""):
		return "its tests log no unavailability: they must call tunneltest.Unavailable, or write the same words"
	case f.Unavailable != "" && err != nil:
		return "its limit is no duration: " + err.Error()
	case f.Unavailable != "" && worst > limit:
		return fmt.Sprintf("unavailable for %v, and the bar is %v", worst, limit)
	}
	return ""
}

// longest is the worst unavailability that the output of tests has.
func longest(text []byte) (worst time.Duration) {
	for _, m := range unavailable.FindAllSubmatch(text, -1) {
		if d, err := time.ParseDuration(string(m[1])); err == nil {
			worst = max(worst, d)
		}
	}
	return worst
}

// Results of a fault, besides "met".
const (
	missed = "**missed**"
	notRun = "**not run**"
)

// ended is how a test or subtest passed or was skipped.
var ended = regexp.MustCompile(`(?m)^ *--- (PASS|SKIP): (\S+)`)

// judge tells what the output of "go test -v" says of a fault. A test or subtest that was skipped, for example because it
// needs root, proves nothing, and neither does a name that matches none.
func (c testCase) judge(text []byte, err error) string {
	if err != nil {
		return missed
	}
	var passed [][]string
	for _, m := range ended.FindAllSubmatch(text, -1) {
		if string(m[1]) == "SKIP" {
			return notRun
		}
		passed = append(passed, strings.Split(string(m[2]), "/"))
	}
	for level, names := range strings.Split(c.Run, "/") {
		for name := range strings.SplitSeq(names, "|") {
			begins := regexp.MustCompile("^(" + name + ")")
			if !slices.ContainsFunc(passed, func(parts []string) bool { return len(parts) > level && begins.MatchString(parts[level]) }) {
				return notRun
			}
		}
	}
	return "met"
}
